package verbs

import (
	"errors"
	"fmt"
)

// Sentinels that an OpError wraps.
var (
	ErrInvalid      = errors.New("invalid argument")
	ErrState        = errors.New("not allowed in this state")
	ErrNoSpace      = errors.New("queue is full")
	ErrBusy         = errors.New("object is in use")
	ErrLimit        = errors.New("device limit reached")
	ErrAccess       = errors.New("access is not permitted")
	ErrTimeout      = errors.New("timed out")
	ErrClosed       = errors.New("closed")
	ErrNotSupported = errors.New("not supported")
	ErrUnreachable  = errors.New("peer address cannot be resolved")
)

// OpError is the error of a call that has failed: the operation, a description, and the sentinel
// that it wraps.
type OpError struct {
	Op     string // e.g. "post send"
	Detail string // what is wrong, with the values
	Index  int    // index of the refused work request
	Err    error
}

func (e *OpError) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Errorf returns an *OpError whose description is formatted as by fmt.Sprintf.
func Errorf(op string, sentinel error, format string, args ...any) error {
	return &OpError{Op: op, Err: sentinel, Detail: fmt.Sprintf(format, args...)}
}

func (e *OpError) Unwrap() error { return e.Err }

// Gone returns nil for the error of an object that has ended already, for example with its NIC, and
// otherwise err. It is for code that destroys an object which may have ended.
func Gone(err error) error {
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}
