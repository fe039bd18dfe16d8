"""The keys of the chat screen. Owns which key means which action and what that is called; must not carry it out."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("escape", "stop", "Take back, stop the answer", show=False, id="chat.stop"),
    Binding("ctrl+c", "interrupt", "Copy, stop, clear or quit", show=False, id="chat.interrupt"),
    Binding("ctrl+d", "app.quit", "Quit", show=False, id="chat.quit"),
    Binding("ctrl+n", "new_chat", "New chat", show=False, id="chat.new"),
    # With priority, so that letters that come in the same read are looked for and not written.
    Binding("ctrl+s", "chats", "List of chats", show=False, priority=True, id="chat.list"),
    Binding("f4", "jump", "To the chat that has answered", show=False, id="chat.jump"),
    Binding("ctrl+o", "browse", "Browse messages", show=False, id="chat.browse"),
    Binding("ctrl+p", "palette", "Everything that can be done, by name", show=False, id="chat.palette"),
    Binding("f5", "alternatives", "Several answers, side by side", show=False, id="chat.alternatives"),
    Binding("f2", "settings", "Settings", show=False, id="chat.settings"),
    Binding("f3", "inspect", "KV inspector", show=False, id="chat.inspect"),
    Binding("pageup", "page(-1)", "Scroll up", show=False, id="chat.page-up"),
    Binding("pagedown", "page(1)", "Scroll down", show=False, id="chat.page-down"),
    Binding("ctrl+end", "end", "To the end", show=False, id="chat.end"),
    Binding("ctrl+t", "fold_all", "Fold or unfold all thoughts", show=False, id="chat.fold-all"),
]
