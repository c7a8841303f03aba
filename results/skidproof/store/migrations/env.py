"""Alembic runs this; skidproof.store.database gives it a connection, nothing else starts it."""

from alembic import context

from skidproof.store import schema

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=schema.metadata, render_as_batch=connection.dialect.name == "sqlite",
                  transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
