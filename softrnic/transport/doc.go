// Package transport is one queue pair: requester, responder and completer as a machine without clock, goroutine
// or socket. The caller hands it (now, event), sends what it appended to Actions, and asks Deadline when it next
// wants to be called.
package transport
