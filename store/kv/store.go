package kv

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Errors of a Store, to be tested with errors.Is.
var (
	// ErrNotFound: the key has no value.
	ErrNotFound = errors.New("no such key")
	// ErrExists: the key to be inserted has a value.
	ErrExists = errors.New("key exists")
	// ErrTooLarge: no node holds so long a value.
	ErrTooLarge = errors.New("value is too large")
	// ErrFull: the store has no room left.
	ErrFull = errors.New("store is full")
	// ErrTimeout: the deadline passed. Unless the error is ErrNoEffect as well, the write
	// may have been executed, or may be executed later.
	ErrTimeout = errors.New("timed out, outcome unknown")
	// ErrLost: the newest value of the key was in the memory of a server that has crashed.
	// Older values of the key are not returned in its place. A write that was in progress when the
	// memory was lost may end with ErrLost although it was executed, even if the key was inserted
	// again meanwhile.
	ErrLost = errors.New("value was lost with its memory server")
	// ErrNoEffect: the operation failed, has changed nothing and never will. It says
	// nothing about the key. It is joined to the error that gives the reason; joined to ErrTimeout
	// it means that the outcome is known after all.
	ErrNoEffect = errors.New("nothing was changed")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)

// TimedOut is an error that is ErrTimeout, and says why.
func TimedOut(why error) error {
	if why == nil || errors.Is(why, ErrTimeout) {
		return errors.Join(ErrTimeout, why)
	}
	return fmt.Errorf("%w: %w", ErrTimeout, why)
}

// Store is one client of a store. It is used by one thread at a time. Deadlines are absolute times
// of the client's Runtime.
type Store interface {
	// Get appends the value of key to dst[:0] and returns the slice. If the key does not exist, it
	// returns ErrNotFound.
	Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error)
	// Put replaces the value of a key. If the key does not exist, it returns ErrNotFound.
	Put(key uint64, value []byte, deadline clock.Time) error
	// Insert adds a key with its value. If the key exists, it returns ErrExists.
	Insert(key uint64, value []byte, deadline clock.Time) error
	// Delete removes a key. If the key does not exist, it returns ErrNotFound.
	Delete(key uint64, deadline clock.Time) error
	// Last returns the cost of the last operation.
	Last() Cost
	Close() error
}

// Cost counts the uses of the network by one operation.
type Cost struct {
	// RTTs is how many round trips the client waited for on the data path. RPCs is how many calls
	// of the metadata server it made.
	RTTs, RPCs int
	// Retries is how many attempts failed because another client changed the key first.
	Retries int
}

// FirstTry reports whether the operation succeeded at its first attempt.
func (c Cost) FirstTry() bool { return c.Retries == 0 }

// Scanner is a Store that keeps its keys in order.
type Scanner interface {
	Store
	// Scan calls f for up to n keys of at least from, in ascending order, until f returns false. A
	// value is valid only during the call of f.
	Scan(from uint64, n int, f func(key uint64, value []byte) bool, deadline clock.Time) error
}
