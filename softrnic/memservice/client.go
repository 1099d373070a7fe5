package memservice

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Service is the name of the memory service of a host.
const Service = "memory"

// MostFormer is the largest number of owners that one Join can remove from a connection.
const MostFormer = 8

// ErrFenced is returned if the owner of a connection was fenced or retired. See Owners in the
// package comment.
var ErrFenced = errors.New("the owner was fenced")

// ErrGone is returned by Join for a connection that the service has ended.
var ErrGone = errors.New("there is no such connection")

// Claim says for which owner a connection is requested, and which earlier connection it replaces.
type Claim struct {
	// Owner is the number of the owner of the connection; 0 means none. Fence ends all connections of
	// an owner.
	Owner uint32
	// Replaces is the Conn of an earlier connection; 0 means none. The service ends that connection
	// first. So when the answer has arrived, no request in flight on the earlier connection is
	// executed any more.
	Replaces uint64
	// Former is only for Join: the numbers of owners under which the client joined the connection
	// before, at most MostFormer. They leave the connection. A fence of a former owner no longer ends
	// the connection, so no request of a former owner may be in flight on it.
	Former []uint32
	// Bytes is the size of a region for this connection alone; 0 means the region that all clients
	// share.
	Bytes int
	// Work is data for the Worker of the service, at most 64 bytes; nil means that the host's
	// processor takes no part in the connection.
	Work []byte
}

// Memory is the answer to a connect request.
type Memory struct {
	memgrant.Grant
	// Work is the answer of the service's Worker.
	Work []byte
}

// errNoMemory is returned if the host has no memory service.
var errNoMemory = errors.New("the host shares no memory; give it some in the rack file (memory: 64MiB)")

// Dial connects qp, which must be in RESET, to the memory service of the host with address addr,
// and returns the region that all its clients share. The region exists as long as the host's NIC.
// The connection has no owner.
func Dial(d rdmacm.Dialer, qp verbs.QP, addr netip.Addr, p rdmacm.Params, deadline clock.Time) (Region, error) {
	m, err := DialShared(d, qp, addr, p, deadline)
	return m.Region, err
}

// DialOwned connects qp as Dial does, with the owner and the other requirements in c. It fails with
// ErrFenced if the owner was fenced.
func DialOwned(d rdmacm.Dialer, qp verbs.QP, to netip.Addr, p rdmacm.Params, c Claim, deadline clock.Time) (Memory, error) {
	m, err := DialService(d, qp, to, Service, p, c, deadline)
	if errors.Is(err, ErrFenced) {
		return Memory{}, fmt.Errorf("connect to the memory of %v as owner %d: %w", to, c.Owner, ErrFenced)
	}
	return dialed(to, m, err)
}

// dialed checks the outcome of a connect request to the memory service of a host.
func dialed(to netip.Addr, m Memory, err error) (Memory, error) {
	if err == nil && m.Len == 0 {
		err = errNoMemory
	}
	if err != nil {
		return Memory{}, fmt.Errorf("connect to the memory of %v: %w", to, err)
	}
	return m, nil
}

// DialService does the same as DialOwned for a service with another name that uses the protocol of
// this package.
func DialService(
	d rdmacm.Dialer, qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, c Claim, deadline clock.Time,
) (Memory, error) {
	if c.Bytes < 0 || c.Bytes > maxOwn || len(c.Work) > maxWork {
		return Memory{}, verbs.Errorf("dial "+service, verbs.ErrInvalid, "%d bytes of memory and %d of work: want at most %d and %d", c.Bytes, len(c.Work), maxOwn, maxWork)
	}
	r := request{kind: kindConnect, conn: c.Replaces, owner: c.Owner, bytes: uint32(c.Bytes), work: c.Work}
	return dial(d, qp, to, service, p, r.encode(), deadline)
}

// DialShared connects qp like Dial, for a queue pair that several threads share (package qpshare).
// Join must follow.
func DialShared(d rdmacm.Dialer, qp verbs.QP, to netip.Addr, p rdmacm.Params, deadline clock.Time) (Memory, error) {
	m, err := dial(d, qp, to, Service, p, nil, deadline)
	return dialed(to, m, err)
}

// Join adds the claim's owner to the owners of connection conn, which carries requests of several
// owners. A fence of any of them ends the connection. Before the service adds the owner, it ends
// connection c.Replaces and removes c.Former from the owners of conn. Join returns ErrFenced if the
// owner was fenced, and ErrGone if conn has ended. It returns another error if conn has too many
// owners, or if c.Former is longer than MostFormer.
func Join(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, conn uint64, c Claim, deadline clock.Time) error {
	if len(c.Former) > MostFormer {
		return fmt.Errorf("join a connection as owner %d: %d former owners, at most %d leave at a time", c.Owner, len(c.Former), MostFormer)
	}
	r := request{kind: kindJoin, owner: c.Owner, former: c.Former, shared: conn}
	if c.Replaces != conn {
		r.conn = c.Replaces
	}
	if _, err := ask(ctx, d, to, r, deadline); err != nil {
		return fmt.Errorf("join a connection to the memory of %v as owner %d: %w", to, c.Owner, err)
	}
	return nil
}

// dial sends a connect request over qp and decodes the answer.
func dial(
	d rdmacm.Dialer, qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time,
) (Memory, error) {
	got, err := d.Dial(qp, to, service, p, private, deadline)
	if err != nil {
		var rej *rdmacm.RejectError
		if !errors.As(err, &rej) || rej.Private == nil {
			return Memory{}, err
		}
		if a, perr := parseAnswer(rej.Private); perr == nil && a.kind == kindRefused && a.code == refusedFenced {
			return Memory{}, ErrFenced
		}
		return Memory{}, err
	}
	a, err := parseAnswer(got)
	if err == nil && a.kind != kindConnect {
		err = fmt.Errorf("answer %v of a memory service to a connect", a.kind)
	}
	return a.memory, err
}

// Fence ends all connections of an owner at the memory service of a host and refuses new ones. When
// it returns nil, no request of the owner that was in flight will be executed, even if its packets
// still arrive. The owner cannot send a new one.
//
// Every host that can connect may call Fence, End and WhoIs. A fence of an owner that has not
// failed costs this owner time, but no data. The service forgets the fence when it is restarted
// without its table of owners (Config.Owners); by then the owner's connections and the locks in
// device memory have ended, too.
func Fence(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, owner uint32, deadline clock.Time) error {
	_, err := call(ctx, d, to, request{kind: kindFence, owner: owner}, deadline, "fence owner %d at", owner)
	return err
}

// Disconnect ends all connections of an owner at the memory service of a host. Unlike Fence it does
// not refuse new ones. That is enough if no request that the owner sends on a later connection
// depends on what it has read on an earlier one.
func Disconnect(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, owner uint32, deadline clock.Time) error {
	_, err := call(ctx, d, to, request{kind: kindDisconnect, owner: owner}, deadline, "disconnect owner %d at", owner)
	return err
}

// DisconnectOthers does the same as Disconnect for all connections except those of the given owner,
// also for connections without an owner. It returns the largest owner number that has ever
// connected or was retired. Afterwards no request of another client is in flight: other clients
// must connect again, and read again what their requests depend on.
func DisconnectOthers(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, owner uint32, deadline clock.Time) (last uint32, err error) {
	a, err := call(ctx, d, to, request{kind: kindDisconnectOthers, owner: owner}, deadline, "disconnect all owners but %d at", owner)
	return a.owner, err
}

// FenceTo does the same as Fence for all owners up to upTo. It does not affect larger numbers, and
// costs the service no memory. A store that numbers its clients in order calls it from time to
// time.
func FenceTo(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, upTo uint32, deadline clock.Time) error {
	_, err := call(ctx, d, to, request{kind: kindFenceTo, owner: upTo}, deadline, "fence the owners up to %d at", upTo)
	return err
}

// Retire fences all owners up to upTo, and all that have ever connected to the memory service of a
// host. It returns the largest number of these owners: larger numbers are free for a new use of the
// memory.
func Retire(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, upTo uint32, deadline clock.Time) (uint32, error) {
	return retire(ctx, d, to, request{kind: kindRetire, owner: upTo}, deadline)
}

// Reserve is Retire for a caller that wants to use the number upTo, and larger numbers that it
// derives from upTo. upTo itself is fenced, too: no client can connect under this number. Reserve
// returns the largest number that had connected or was retired before. If this is smaller than
// upTo, the caller has got upTo.
//
// If several callers request the same number from one service, only one gets it. A caller does not
// get a number if a larger one was retired before. So a caller whose answer was lost requests a
// larger number. The service forgets the numbers when it is restarted without its table of owners.
func Reserve(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, upTo uint32, deadline clock.Time) (before uint32, err error) {
	return retire(ctx, d, to, request{kind: kindReserve, owner: upTo}, deadline)
}

// retire sends the request of Retire or of Reserve.
func retire(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, r request, deadline clock.Time) (uint32, error) {
	a, err := call(ctx, d, to, r, deadline, "retire the owners at")
	return a.owner, err
}

// Holder is the state of an owner at a memory service; see Owners in the package comment.
type Holder struct {
	// Peer is the address from which the owner connected last; "" means that it has never connected.
	Peer string `json:"p,omitempty"`
	// QPs is the number of the owner's connections that have not failed.
	QPs int `json:"q"`
	// Fenced: the owner was fenced or retired.
	Fenced bool `json:"f,omitempty"`
}

// WhoIs asks the memory service of a host what it knows about an owner.
func WhoIs(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, owner uint32, deadline clock.Time) (Holder, error) {
	a, err := call(ctx, d, to, request{kind: kindWho, owner: owner}, deadline, "ask for owner %d at", owner)
	return a.holder, err
}

// End ends one connection. When it returns nil, no request in flight on the connection will be
// executed.
func End(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, conn uint64, deadline clock.Time) error {
	_, err := call(ctx, d, to, request{kind: kindEnd, conn: conn}, deadline, "end a connection to")
	return err
}

// EndService does the same as End for a service with another name. It needs a queue pair in RESET,
// which stays in RESET.
func EndService(d rdmacm.Dialer, qp verbs.QP, to netip.Addr, service string, conn uint64, deadline clock.Time) error {
	_, err := askBy(d, qp, to, service, request{kind: kindEnd, conn: conn}, deadline)
	return err
}

// call sends the memory service a request that makes no connection. The text of an error begins
// with the format `doing` with args, for example "fence owner 3 at".
func call(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, r request, deadline clock.Time, doing string, args ...any) (answer, error) {
	a, err := ask(ctx, d, to, r, deadline)
	if err != nil {
		return answer{}, fmt.Errorf("%s the memory of %v: %w", fmt.Sprintf(doing, args...), to, err)
	}
	return a, nil
}

// ask sends the memory service a request that makes no connection. A REQ names a queue pair, so ask
// creates one that is never connected.
func ask(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, r request, deadline clock.Time) (_ answer, err error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return answer{}, err
	}
	defer func() { err = errors.Join(err, pd.Dealloc()) }()
	cq, err := ctx.CreateCQ(1)
	if err != nil {
		return answer{}, err
	}
	defer func() { err = errors.Join(err, cq.Destroy()) }()
	qp, err := pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1})
	if err != nil {
		return answer{}, err
	}
	defer func() { err = errors.Join(err, qp.Destroy()) }()
	return askBy(d, qp, to, Service, r, deadline)
}

// askBy sends the request and decodes the answer in the private data of the REJ.
func askBy(d rdmacm.Dialer, qp verbs.QP, to netip.Addr, service string, r request, deadline clock.Time) (answer, error) {
	_, err := d.Dial(qp, to, service, rdmacm.Params{}, r.encode(), deadline)
	if err == nil {
		return answer{}, errors.New("the service connected a request that wants no connection")
	}
	var rej *rdmacm.RejectError
	if !errors.As(err, &rej) {
		return answer{}, err
	}
	if rej.Private == nil {
		return answer{}, errors.New(rej.Reason)
	}
	a, err := parseAnswer(rej.Private)
	switch {
	case err != nil:
		return answer{}, err
	case a.kind == kindRefused && refusals[a.code] != nil:
		return answer{}, refusals[a.code]
	case a.kind == kindRefused:
		return answer{}, errors.New(rej.Reason)
	case a.kind != r.kind:
		return answer{}, fmt.Errorf("answer %v of a memory service to request %v", a.kind, r.kind)
	}
	return a, nil
}
