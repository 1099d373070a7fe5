package verbs

// SRQInit are the creation attributes of a shared receive queue.
type SRQInit struct {
	MaxWR  int // 0 means 128
	MaxSGE int // 0 means 4
}

// SRQAttr has the attributes of a shared receive queue.
type SRQAttr struct {
	ID            uint32 // in asynchronous events
	MaxWR, MaxSGE int
	// Limit is the limit that SetLimit has set; 0 if none is set or the event was raised.
	Limit int
	// Queued is the number of receives that no queue pair has taken.
	Queued int
}

// SRQ is a shared receive queue: queue pairs that were created with it take a receive from it when
// a message begins. Completions go to the receive CQ of the queue pair that took the receive.
//
// A queue pair in the error state flushes only the receive that it has in use, and raises
// EventQPLastWQE.
type SRQ interface {
	// Query returns attributes and state.
	Query() (SRQAttr, error)
	// PostRecv queues receives. If one is refused, the error has its index; those before it are
	// queued.
	PostRecv(wr ...RecvWR) error
	// SetLimit arms EventSRQLimit: it is raised once when a queue pair takes a receive and fewer
	// than n remain. 0 disarms it.
	SetLimit(n int) error
	// Resize changes the capacity; queued receives and the limit stay. It fails with ErrInvalid if
	// more are queued or the limit is higher.
	Resize(maxWR int) error
	// Destroy fails with ErrBusy while queue pairs use it.
	Destroy() error
}
