"""Where a figure's history steps."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = depends_on = None


def upgrade():
    op.create_table("change_points",
        sa.Column("subject", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("figure", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("after_run", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("before_run", sa.Integer()),
        sa.Column("before", sa.Float(53)),
        sa.Column("after", sa.Float(53)),
        sa.Column("effect", sa.Float(53)),
        sa.Column("low", sa.Float(53)),
        sa.Column("high", sa.Float(53)),
        sa.Column("p", sa.Float(53)),
        sa.Column("attributed", sa.JSON()),
        sa.Column("computed", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["after_run"], ["runs.run"], name="change_points_after_run_fk"),
        sa.ForeignKeyConstraint(["before_run"], ["runs.run"], name="change_points_before_run_fk"),
        sa.ForeignKeyConstraint(["figure"], ["figures.figure"], name="change_points_figure_fk"),
        sa.ForeignKeyConstraint(["subject"], ["subjects.subject"], name="change_points_subject_fk"),
        sa.PrimaryKeyConstraint("subject", "figure", "after_run", name="change_points_pk"))
    op.create_index("change_points_after_run_index", "change_points", ["after_run"])
    op.create_index("change_points_before_run_index", "change_points", ["before_run"])
