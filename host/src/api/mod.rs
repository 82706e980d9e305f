//! The HTTP side: status, production, metrics and the page.
