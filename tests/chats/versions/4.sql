-- The chat database of version 4 with a chat in it, as it was written then. Not to be changed: files like it are on disks.
CREATE TABLE chats (
        id TEXT PRIMARY KEY NOT NULL,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        system TEXT NOT NULL,
        clock REAL NOT NULL,
        model TEXT NOT NULL,
        head TEXT REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
        deleted_at REAL,
        settings TEXT NOT NULL
    );
CREATE TABLE messages (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        parent TEXT REFERENCES messages (id) ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        text TEXT NOT NULL,
        created REAL NOT NULL,
        finish TEXT,
        model TEXT NOT NULL,
        usage TEXT,
        deleted_at REAL
    );
CREATE TABLE message_ids (
        message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        ids BLOB NOT NULL CHECK (length(ids) % 4 = 0),
        PRIMARY KEY (message, key)
    );
CREATE INDEX chats_by_updated ON chats (updated);
CREATE INDEX messages_by_chat ON messages (chat, parent);
CREATE INDEX messages_by_parent ON messages (parent);
CREATE VIRTUAL TABLE message_text USING fts5 (
        text, content = 'messages', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 2'
    );
CREATE TRIGGER message_text_insert AFTER INSERT ON messages BEGIN
        INSERT INTO message_text (rowid, text) VALUES (new.number, new.text);
    END;
CREATE TRIGGER message_text_delete AFTER DELETE ON messages BEGIN
        INSERT INTO message_text (message_text, rowid, text) VALUES ('delete', old.number, old.text);
    END;
CREATE TRIGGER message_text_update AFTER UPDATE OF text ON messages BEGIN
        INSERT INTO message_text (message_text, rowid, text) VALUES ('delete', old.number, old.text);
        INSERT INTO message_text (rowid, text) VALUES (new.number, new.text);
    END;
ALTER TABLE chats ADD COLUMN pinned_at REAL;
ALTER TABLE chats ADD COLUMN title_by TEXT NOT NULL DEFAULT 'person';
ALTER TABLE chats ADD COLUMN origin TEXT;
CREATE UNIQUE INDEX chats_by_origin ON chats (origin) WHERE origin IS NOT NULL;
CREATE TABLE drafts (chat TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL, labels TEXT NOT NULL);
CREATE TRIGGER drafts_of_chat AFTER DELETE ON chats BEGIN
        DELETE FROM drafts WHERE chat = old.id;
    END;
CREATE TABLE message_evictions (
        message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        log TEXT NOT NULL,
        PRIMARY KEY (message, key)
    );
INSERT INTO chats (id, title, created, updated, system, clock, model, head, deleted_at, settings) VALUES ('01CHAT', 'Über Zebras', 1700000000.5, 1700000100.5, 'Be brief.', 1700000000.0, 'SmolLM2', NULL, NULL, '{"sampling": {"seed": 7}}');
INSERT INTO chats (id, title, created, updated, system, clock, model, head, deleted_at, settings) VALUES ('01TRASH', 'Thrown away', 1700000000.5, 1700000001.5, '', 1700000000.0, '', NULL, 4102444800.0, '{}');
INSERT INTO messages (number, id, chat, parent, role, text, created, finish, model, usage, deleted_at) VALUES (1, '01Q', '01CHAT', NULL, 'user', 'Why do zebras have stripes?', 1700000001.0, '', '', NULL, NULL);
INSERT INTO messages (number, id, chat, parent, role, text, created, finish, model, usage, deleted_at) VALUES (2, '01A', '01CHAT', '01Q', 'assistant', 'Nobody knows: 한국어 👩‍💻', 1700000002.0, 'stop', 'SmolLM2', '{"prompt_tokens": 5, "reused": 3}', NULL);
INSERT INTO messages (number, id, chat, parent, role, text, created, finish, model, usage, deleted_at) VALUES (3, '01B', '01CHAT', '01Q', 'assistant', 'Another answer', 1700000003.0, 'cancelled', 'SmolLM2', NULL, NULL);
INSERT INTO messages (number, id, chat, parent, role, text, created, finish, model, usage, deleted_at) VALUES (4, '01D', '01CHAT', '01A', 'user', 'deleted words', 1700000004.0, '', '', NULL, 1700000050.0);
UPDATE chats SET head = '01A' WHERE id = '01CHAT';
INSERT INTO message_ids (message, key, ids) VALUES ('01Q', 'key-1', x'010000000200000003000000'), ('01A', 'key-1', x'0400000005000000');
UPDATE chats SET pinned_at = 1700000200.0, title_by = 'model', origin = 'chatgpt:1' WHERE id = '01CHAT';
INSERT INTO drafts (chat, text, labels) VALUES ('01CHAT', 'half a draft', '{}'), ('', 'a new one', '{}');
INSERT INTO message_evictions (message, key, log) VALUES ('01A', 'key-1', '[[4,[[1,2]],""]]');
PRAGMA application_id = 1802920808;
PRAGMA user_version = 4;
