package handler

import (
	"errors"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Kinds of errors. The daemon derives the status of its answer to a control request from the kind.
// Refused and Gone give an error one of these kinds.
var (
	// ErrRefused is the kind of an error in the request itself.
	ErrRefused = errors.New("refused")
	// ErrGone is the kind of an error if the object of the request does not exist.
	ErrGone = errors.New("not there")
	// ErrNoRules is returned for requests that the running program does not serve.
	ErrNoRules = errors.New("the switch's program has no rules: load the program swordbox with `rdmalab switch program swordbox`, or write " +
		"program: swordbox in the rack file")
)

// kindError is the error err with a kind. Error returns the text of err only.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// WithKind gives err a kind, which errors.Is finds. The text stays that of err.
func WithKind(kind, err error) error { return &kindError{kind, err} }

// Refused gives err the kind ErrRefused.
func Refused(err error) error { return WithKind(ErrRefused, err) }

// Gone gives err the kind ErrGone.
func Gone(err error) error { return WithKind(ErrGone, err) }

// Request is a kind of request that a program serves on the switch's control socket.
type Request struct {
	// Pattern is the method and path in the syntax of http.ServeMux, like "DELETE
	// /connections/{server}/{shard}". Doc says what the request does.
	Pattern, Doc string
	// Do serves the request between two packets, and returns the value that is sent as JSON. p is
	// the running program. If p is not the program to which the request belongs, Do returns
	// ErrNoRules.
	Do func(p pipeline.Program, c *Call) (any, error)
}

// Call is a control request that is being served.
type Call struct {
	Now clock.Time
	// Body decodes the body and refuses unknown fields.
	Body func(into any) error
	// Value returns the segment of the path that has matched the wildcard {name} of Pattern.
	Value func(name string) string
	// Address returns the address by which rules name a server. server is the name of a host of the
	// rack, or an address.
	Address func(server string) (netip.Addr, error)
	// Step runs f as a step of the program, and sends the frames that f emits.
	Step func(f func(c *pipeline.Ctx))
}
