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

// WithKind returns err with a kind, which errors.Is finds. The text stays that of err. If err is nil,
// the result is nil.
func WithKind(kind, err error) error {
	if err == nil {
		return nil
	}
	return &kindError{kind, err}
}

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

// Entries is the body of POST /entries: entries to write to the table of a rule, or to remove.
type Entries struct {
	Rule string `json:"rule"`
	// Entries are in the text form of the handler.
	Entries []string `json:"entries,omitempty"`
	// Remove is true if the entries with the keys in Entries are to be removed.
	Remove bool `json:"remove,omitempty"`
}

// EntriesReport answers Entries.
type EntriesReport struct {
	// Taken is how many entries the switch has accepted, counted from the first one. The switch has
	// no room now for the entries after these.
	Taken int `json:"taken"`
	// Waiting is how many changes have not ended. Written, Removed and Refused count the changes
	// that have ended since the rule exists. Why says why the last refused change was refused.
	Waiting int    `json:"waiting"`
	Written uint64 `json:"written"`
	Removed uint64 `json:"removed"`
	Refused uint64 `json:"refused"`
	Why     string `json:"why,omitempty"`
	// Down names a server of the table to which the switch has no connection, and says why; ""
	// means that the switch is connected to every server of the table.
	Down string `json:"down,omitempty"`
}

// EntriesPage is a part of the table of a rule.
type EntriesPage struct {
	// Ready is true if the other fields are set. If it is false, the switch is still reading the
	// table, and the client asks again.
	Ready   bool     `json:"ready"`
	Entries []string `json:"entries,omitempty"`
	// Server and From are the fields of the next EntriesRange, which asks for the next part. End is
	// true if there is no further part.
	Server int  `json:"server"`
	From   int  `json:"from"`
	End    bool `json:"end"`
}

// EntriesRange is the body of POST /entries/page.
type EntriesRange struct {
	Rule   string `json:"rule"`
	Server int    `json:"server"`
	From   int    `json:"from"`
}
