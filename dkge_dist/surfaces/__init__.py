"""What people and programs see of a store: commands, HTTP, pages. Views of records and answers; they decide nothing."""
