package perf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// ErrFenced says that the memory service takes no connections of this owner any more.
var ErrFenced = errors.New("the owner was fenced")

// MemoryHello is what a client tells the memory service of a connection.
type MemoryHello struct {
	// Owner is who answers for what is written over the connection; 0: nobody. Fence ends all connections of an owner.
	Owner uint32
	// Replaces is the Conn of a connection that is to be ended first, so that nothing that was under way on it is
	// executed any more; 0: none.
	Replaces uint64
}

// Memory is what the memory service shares.
type Memory struct {
	Region
	// Locks is zero-based memory on the NIC; its Len is 0 if there is none.
	Locks Region
	// Conn names the connection.
	Conn uint64
	// Boot differs between two lives of the service. What was in Locks does not outlive one.
	Boot uint64
}

// DialOwned is DialMemory for an owner. ErrFenced if that was fenced.
func DialOwned(d rdmacm.Dialer, qp verbs.QP, to netip.Addr, p rdmacm.Params, m MemoryHello, deadline clock.Time) (Memory, error) {
	h := hello{Op: opOpen, Owner: m.Owner, ID: m.Replaces}
	private, err := d.Dial(qp, to, MemoryService, p, h.encode(), deadline)
	var rej *rdmacm.RejectError
	if errors.As(err, &rej) && rej.Reason == fencedReason {
		return Memory{}, fmt.Errorf("connect to the memory of %v as owner %d: %w", to, m.Owner, ErrFenced)
	}
	if err != nil {
		return Memory{}, fmt.Errorf("connect to the memory of %v: %w", to, err)
	}
	w, err := parseWelcome(private)
	if err == nil && w.Memory.Len == 0 {
		err = fmt.Errorf("the host shares no memory; give it some in the rack file (memory: 64MiB)")
	}
	if err != nil {
		return Memory{}, fmt.Errorf("connect to the memory of %v: %w", to, err)
	}
	return Memory{Region: w.Memory, Locks: w.Locks, Conn: w.ID, Boot: w.Boot}, nil
}

// Fence ends all connections of an owner at the memory service of a host, for ever. When it returns nil, nothing that
// the owner had under way there is executed any more, wherever its packets are, and it can send nothing new.
//
// Anybody who can connect may fence, end connections, and ask, as anybody who can connect may write to the memory: the service
// trusts its network. A fence of a living owner costs it time, and no data. What was fenced is forgotten when the service is started
// anew; by then its connections, and the locks on the NIC, are gone.
func Fence(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, owner uint32, deadline clock.Time) error {
	reason, err := ask(ctx, d, to, hello{Op: opFence, Owner: owner}, deadline)
	if err == nil && reason != fencedReason {
		err = errors.New(reason)
	}
	if err != nil {
		return fmt.Errorf("fence owner %d at the memory of %v: %w", owner, to, err)
	}
	return nil
}

// Retire fences all owners up to upTo, and all that ever connected to the memory service of a host, and returns the greatest number
// among these: numbers above it are free for a new use of the memory.
func Retire(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, upTo uint32, deadline clock.Time) (uint32, error) {
	reason, err := ask(ctx, d, to, hello{Op: opRetire, Owner: upTo}, deadline)
	var last uint64
	if err == nil {
		if number, ok := strings.CutPrefix(reason, retiredReason); !ok {
			err = errors.New(reason)
		} else {
			last, err = strconv.ParseUint(number, 10, 32)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("retire the owners at the memory of %v: %w", to, err)
	}
	return uint32(last), nil
}

// Holder is what the memory service knows of an owner.
type Holder struct {
	// Peer is the address that its last connection came from; "": none came.
	Peer string `json:"p,omitempty"`
	// QPs is how many connections it has that have not failed.
	QPs int `json:"q"`
	// Fenced says that it was fenced.
	Fenced bool `json:"f,omitempty"`
}

// WhoIs asks the memory service of a host about an owner.
func WhoIs(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, owner uint32, deadline clock.Time) (Holder, error) {
	reason, err := ask(ctx, d, to, hello{Op: opWho, Owner: owner}, deadline)
	var h Holder
	if err == nil {
		err = json.Unmarshal([]byte(reason), &h)
	}
	if err != nil {
		return Holder{}, fmt.Errorf("ask for owner %d at the memory of %v: %w", owner, to, err)
	}
	return h, nil
}

// EndConn ends one connection, so that nothing that was under way on it is executed any more.
func EndConn(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, conn uint64, deadline clock.Time) error {
	reason, err := ask(ctx, d, to, hello{Op: opClose, ID: conn}, deadline)
	if err == nil && reason != closedReason {
		err = errors.New(reason)
	}
	if err != nil {
		return fmt.Errorf("end a connection to the memory of %v: %w", to, err)
	}
	return nil
}

// ask sends the memory service a request that needs no connection: a refusal is the answer.
func ask(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, h hello, deadline clock.Time) (reason string, err error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pd.Dealloc()) }()
	cq, err := ctx.CreateCQ(1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, cq.Destroy()) }()
	qp, err := pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, qp.Destroy()) }()
	_, err = d.Dial(qp, to, MemoryService, rdmacm.Params{}, h.encode(), deadline)
	var rej *rdmacm.RejectError
	switch {
	case errors.As(err, &rej):
		return rej.Reason, nil
	case err == nil:
		err = errors.New("the service took a question for a connection")
	}
	return "", err
}
