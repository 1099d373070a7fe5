// Package serve is the daemon's side of package ipc: it lets other processes use a NIC that lives in this one.
//
// Each application that connects gets a verbs context of its own. It makes objects by requests on its socket, which one
// goroutine serves; when the socket ends, for whatever reason, the context is closed and with it goes everything that was
// made through it. Posting and polling go through shared memory (package ring): one goroutine for all applications, the
// pump, looks at their doorbells, posts what is there on the engine, and carries completions the other way, while the NIC
// makes progress. When nothing has happened for a while it sleeps, and applications wake it by a byte on a socket.
//
// An application is not trusted. Every entry of a ring is copied once and checked as a copy, positions are held against the
// length of the ring, handles are looked up in a table of the application alone, memory is made and sealed here, and
// everything that an application can have is counted (Limits). Who breaks the rules of the rings or of the socket is cut
// off. The wake-up is a socket and not an eventfd: an application could make an eventfd block its other end.
//
// Locking: what the pump works on (ports, rings, who owns which number) is guarded by the engine's exclusiveness
// (binding.Body.Enter); the handles of a client by client.mu; lists of clients and shared regions by Server.mu.
package serve
