package proto

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Error is the encoding of an error for another process: of a verbs.OpError, of a refused
// connection, or of any other error by its text. Code is the code of the sentinel that the error
// wraps; 0 means none.
type Error struct {
	Code   uint32 `json:"code,omitempty"`
	Op     string `json:"op,omitempty"`
	Detail string `json:"detail,omitempty"`
	Index  int    `json:"index,omitempty"`
	// Refused: a peer has refused a connection. Reason and Private are from the peer's refusal.
	Refused bool       `json:"refused,omitempty"`
	Reason  mad.Reason `json:"reason,omitempty"`
	Private []byte     `json:"private,omitempty"`
}

// sentinels are the errors that errors.Is also finds in the other process. The code of an error is
// its index plus one.
var sentinels = [...]error{
	verbs.ErrInvalid, verbs.ErrState, verbs.ErrNoSpace, verbs.ErrBusy, verbs.ErrLimit, verbs.ErrAccess, verbs.ErrTimeout,
	verbs.ErrClosed, verbs.ErrNotSupported, verbs.ErrUnreachable, rdmacm.ErrRejected, rdmacm.ErrProtocol, rdmacm.ErrInUse,
}

// maxDetail is the largest length of an error's text in bytes.
const maxDetail = 1024

// Code returns the code of an error, 0 if it is none of the sentinels.
func Code(err error) uint32 {
	return uint32(slices.IndexFunc(sentinels[:], func(s error) bool { return errors.Is(err, s) }) + 1)
}

// Sentinel returns the error of a code; for an unknown code errOther.
func Sentinel(code uint32) error {
	if code >= 1 && int(code) <= len(sentinels) {
		return sentinels[code-1]
	}
	return errOther
}

var errOther = errors.New("failed in the daemon")

func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{Code: Code(err), Detail: err.Error()}
	var op *verbs.OpError
	var refused *rdmacm.RejectError
	switch {
	case errors.As(err, &refused):
		e.Refused, e.Detail, e.Reason, e.Private = true, refused.Reason, refused.Code, refused.Private
	case errors.As(err, &op) && errors.Is(op.Err, Sentinel(e.Code)):
		e.Op, e.Detail, e.Index = op.Op, op.Detail, op.Index
	}
	e.Detail = e.Detail[:min(len(e.Detail), maxDetail)]
	return e
}

// Err decodes what ErrorOf has encoded. For nil it returns nil.
func (e *Error) Err() error {
	switch {
	case e == nil:
		return nil
	case e.Refused:
		return &rdmacm.RejectError{Reason: e.Detail, Code: e.Reason, Private: e.Private}
	case e.Op != "":
		return &verbs.OpError{Op: e.Op, Detail: e.Detail, Index: e.Index, Err: Sentinel(e.Code)}
	}
	return fmt.Errorf("%w: %s", Sentinel(e.Code), e.Detail)
}
