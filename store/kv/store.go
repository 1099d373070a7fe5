package kv

import (
	"errors"
	"fmt"
	"io"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Errors of a Store. Callers test for them with errors.Is.
var (
	ErrNotFound = errors.New("no such key")
	ErrExists   = errors.New("key exists")
	// ErrTooLarge means that the store cannot store a value of this length.
	ErrTooLarge = errors.New("value is too large")
	ErrFull     = errors.New("store is full")
	// ErrTimeout means that the deadline passed. A write may have been executed, or may be executed
	// later, unless the error is ErrNoEffect as well.
	ErrTimeout = errors.New("timed out, outcome unknown")
	// ErrLost means that the newest value of the key was in the memory of a server that has
	// crashed. The store does not return older values in its place. A write that was in progress
	// when the memory was lost may end with ErrLost although it was executed, even if the key was
	// inserted again meanwhile.
	ErrLost = errors.New("value was lost with its memory server")
	// ErrNoEffect means that the operation has failed, has changed nothing and never will. It says
	// nothing about the key. It is joined with the error that gives the reason. Joined with
	// ErrTimeout, it means that the outcome is known after all.
	ErrNoEffect = errors.New("nothing was changed")
	ErrClosed   = errors.New("store is closed")
)

// TimedOut returns an error that is ErrTimeout and contains the error `why`.
func TimedOut(why error) error {
	if why == nil || errors.Is(why, ErrTimeout) {
		return errors.Join(ErrTimeout, why)
	}
	return fmt.Errorf("%w: %w", ErrTimeout, why)
}

// CloseAfter closes c if *err is an error, and joins the error of closing to it. A function that
// opens c defers CloseAfter, so that c is closed if a later step fails.
func CloseAfter(err *error, c io.Closer) {
	if *err != nil {
		*err = errors.Join(*err, c.Close())
	}
}

// Store is one client of a store. One thread at a time uses it. Deadlines are absolute times by the
// clock of the client's Runtime.
type Store interface {
	// Get appends the value of key to dst[:0] and returns the slice. If the key does not exist, it
	// returns ErrNotFound.
	Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error)
	// Put replaces the value of a key. If the key does not exist, it returns ErrNotFound.
	Put(key uint64, value []byte, deadline clock.Time) error
	// Insert adds a new key with its value. If the key exists, it returns ErrExists.
	Insert(key uint64, value []byte, deadline clock.Time) error
	// Delete removes a key. If the key does not exist, it returns ErrNotFound.
	Delete(key uint64, deadline clock.Time) error
	Last() Cost
	Close() error
}

// Cost says how much one operation has used the network.
type Cost struct {
	// RTTs is how many round trips on the data path the client has waited for. RPCs is how many
	// calls of the metadata server it has made.
	RTTs, RPCs int
	// Retries is how many attempts have failed because another client changed the key first.
	Retries int
}

// FirstTry reports whether the operation had no retry. If it has succeeded, it was at its first
// attempt.
func (c Cost) FirstTry() bool { return c.Retries == 0 }

// Scanner is a Store that keeps its keys in order.
type Scanner interface {
	Store
	// Scan calls f for up to n keys in ascending order, beginning at `from`, until f returns false.
	// A value is valid only during the call of f.
	Scan(from uint64, n int, f func(key uint64, value []byte) bool, deadline clock.Time) error
}
