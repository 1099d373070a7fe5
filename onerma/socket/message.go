package socket

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Env is the environment variable with the path of the socket, for programs on a host.
const Env = "RDMALAB_ONERMA"

// MaxMessage is the largest length of a message in bytes.
const MaxMessage = 4096

// Values of request.Do: what a program asks for. The comments say which fields of the request
// count.
const (
	doWho      = "who"      // PID and address of the process
	doMemory   = "memory"   // Bytes, Access: new memory
	doForget   = "forget"   // Region: the program uses its memory no more
	doGrant    = "grant"    // Region, Addr, PID: keys for another process
	doBorrow   = "borrow"   // Addr, Bytes: memory of a host
	doUse      = "use"      // Addr, Grant: memory that a peer has granted
	doGiveBack = "giveBack" // Remote: the program uses the peer's memory no more
	doRead     = "read"     // Remote, Offset, Length, Region, At, Class, Once, Within: a READ
	doWrite    = "write"    // the same fields: a WRITE
	doRekey    = "rekey"    // Remote, Key
	doPolicy   = "policy"   // Policy: what sets the process's congestion windows
	doCancel   = "cancel"   // Of: the number of a request; it has no answer
)

// request is a message of a program to the daemon. ID is the program's number for it; Do says which
// other fields count.
type request struct {
	ID     uint64       `json:"id"`
	Do     string       `json:"do"`
	Of     uint64       `json:"of,omitempty"`
	Bytes  int          `json:"bytes,omitempty"`
	Access verbs.Access `json:"access,omitempty"`
	Addr   netip.Addr   `json:"addr,omitzero"`
	PID    nic.PID      `json:"pid,omitempty"`
	Grant  *host.Grant  `json:"grant,omitempty"`
	Key    string       `json:"key,omitempty"`
	Policy string       `json:"policy,omitempty"`
	// Region and Remote are numbers that the daemon has given to memory of the program, and to
	// memory of a peer.
	Region uint32 `json:"region,omitempty"`
	Remote uint32 `json:"remote,omitempty"`
	Offset uint64 `json:"offset,omitempty"`
	Length int    `json:"length,omitempty"`
	At     uint64 `json:"at,omitempty"` // offset in Region
	Class  uint8  `json:"class,omitempty"`
	Once   bool   `json:"once,omitempty"`
	// Within is how long a transfer may be tried, in nanoseconds; 0 means that there is no limit.
	Within time.Duration `json:"within,omitempty"`
}

// answer is a message of the daemon to a program: the answer to the request with the same ID.
// Failed or Error is set if the request has failed.
type answer struct {
	ID     uint64            `json:"id"`
	PID    nic.PID           `json:"pid,omitempty"`
	Addr   netip.Addr        `json:"addr,omitzero"`
	Region uint32            `json:"region,omitempty"`
	Remote uint32            `json:"remote,omitempty"`
	Length uint64            `json:"length,omitempty"`
	Grant  *host.Grant       `json:"grant,omitempty"`
	Result host.Result       `json:"result,omitzero"`
	Failed *host.StatusError `json:"failed,omitempty"`
	Error  string            `json:"error,omitempty"`
	Closed bool              `json:"closed,omitempty"` // the error is verbs.ErrClosed: the NIC has ended
}

func (a *answer) err() error {
	switch {
	case a.Failed != nil:
		return a.Failed
	case a.Closed:
		return fmt.Errorf("%s: %w", a.Error, verbs.ErrClosed)
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

func (a *answer) fail(err error) {
	if err == nil || errors.As(err, &a.Failed) {
		return
	}
	a.Error, a.Closed = err.Error(), errors.Is(err, verbs.ErrClosed)
}

// decode decodes message b. Unknown fields are an error.
func decode(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func parseKey(s string) (nic.Key, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(nic.Key{}) {
		return nic.Key{}, fmt.Errorf("key %.40q: want %d bytes in hexadecimal", s, len(nic.Key{}))
	}
	return nic.Key(b), nil
}
