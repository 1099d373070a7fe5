package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// dialPatience bounds the time in which a connection is made, in virtual time.
const dialPatience = time.Minute

// wordAccess are the rights of a region whose bytes and words peers use by all operations.
const wordAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// ends has the verbs objects of one end of a connection: a queue pair, its completion queue, and a
// memory region.
type ends struct {
	rt  verbs.Runtime
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
	buf []byte // the memory of the region mr
}

// newEnds makes the objects of one side: a memory region of n bytes, and queues with room for depth
// work requests.
func newEnds(ctx verbs.Context, n, depth int, access verbs.Access) (*ends, error) {
	init := verbs.QPInit{MaxSendWR: depth + 2, MaxRecvWR: depth + 1, MaxSGE: maxPieces, MaxInline: maxInline}
	return newEndsOf(ctx, init, n, 2*depth+3, access)
}

// newEndsOf is newEnds for any kind of queue pair. init describes it, except for its completion
// queue, which has room for the given number of completions.
func newEndsOf(ctx verbs.Context, init verbs.QPInit, n, completions int, access verbs.Access) (*ends, error) {
	e := &ends{rt: ctx.Runtime(), buf: make([]byte, n)}
	var err error
	if e.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if e.cq, err = ctx.CreateCQ(completions); err != nil {
		return nil, err
	}
	if e.mr, err = e.pd.RegMR(e.buf, n, access); err != nil {
		return nil, err
	}
	init.SendCQ, init.RecvCQ = e.cq, e.cq
	e.qp, err = e.pd.CreateQP(init)
	return e, err
}

// close destroys all objects; an error means a defect of the code under test.
func (e *ends) close() error {
	return errors.Join(e.qp.Destroy(), e.mr.Dereg(), e.cq.Destroy(), e.pd.Dealloc())
}

// await polls the completion queue until it has a completion, and returns how many it has put into
// wcs. It returns an error after patience, which must be longer than all retries of a request take.
func (e *ends) await(wcs []verbs.WC, patience time.Duration) (int, error) {
	for {
		n, err := e.cq.Poll(wcs)
		if n > 0 || err != nil {
			return n, err
		}
		if err := e.cq.Wait(e.rt.Now().Add(patience)); err != nil {
			return 0, fmt.Errorf("no completion for %v: %w", patience, err)
		}
	}
}

// one waits for a single completion and returns it.
func (e *ends) one() (verbs.WC, error) {
	var wc [1]verbs.WC
	_, err := e.await(wc[:], mixPatience)
	return wc[0], err
}

// do posts one work request, which requests a completion, and returns the completion.
func (e *ends) do(wr verbs.SendWR) (verbs.WC, error) {
	wr.Flags |= verbs.Signalled
	if err := e.qp.PostSend(wr); err != nil {
		return verbs.WC{}, err
	}
	return e.one()
}

// received yields the completions of cq one after the other, and waits for further ones. If the
// completion queue fails, it yields the error and ends.
func received(cq verbs.CQ) iter.Seq2[*verbs.WC, error] {
	return func(yield func(*verbs.WC, error) bool) {
		var wcs [4]verbs.WC
		for {
			n, err := cq.Poll(wcs[:])
			if err == nil && n == 0 {
				err = cq.Wait(clock.Never)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range wcs[:n] {
				if !yield(&wcs[i], nil) {
					return
				}
			}
		}
	}
}

// remote describes a memory region of the peer: address, R_Key and length.
type remote struct {
	addr uint64
	rkey uint32
	n    int
}

const remoteLen = 16

func (r remote) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, r.addr)
	b = binary.BigEndian.AppendUint32(b, r.rkey)
	return binary.BigEndian.AppendUint32(b, uint32(r.n))
}

func parseRemotes(b []byte) []remote {
	var out []remote
	for ; len(b) >= remoteLen; b = b[remoteLen:] {
		out = append(out, remote{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), int(binary.BigEndian.Uint32(b[12:]))})
	}
	return out
}

func remoteOf(mr verbs.MR) remote { return remote{mr.Addr(), mr.RKey(), mr.Len()} }

// dial connects qp to a service of the host named by the constant server, and returns the memory
// regions that this host describes in its answer. private is the private data of the connection
// request.
func (e *env) dial(from *simrack.Host, ctx verbs.Context, qp verbs.QP, service string, p rdmacm.Params, private []byte) ([]remote, error) {
	private, err := from.Manager(ctx).Dial(qp, e.addrOf(server), service, p, private, ctx.Runtime().Now().Add(dialPatience))
	return parseRemotes(private), err
}

// addrOf returns a host's address of the family that the seed has drawn.
func (e *env) addrOf(host string) netip.Addr {
	h := e.rack.Host(host)
	if e.v6 {
		return h.Spec.IPv6
	}
	return h.Spec.IPv4
}

func (e *env) addrsOf(hosts []string) (out []netip.Addr) {
	for _, h := range hosts {
		out = append(out, e.addrOf(h))
	}
	return out
}

// listen begins to listen for a service on host h, and makes a protection domain.
func listen(h *simrack.Host, ctx verbs.Context, service string) (l rdmacm.Listener, pd verbs.PD, err error) {
	if l, err = h.Manager(ctx).Listen(service); err == nil {
		pd, err = ctx.AllocPD()
	}
	return l, pd, err
}

// acceptAll accepts n connections, each with a queue pair of the protection domain pd, and sends
// each dialer the description of region. After that the server is passive.
func acceptAll(ctx verbs.Context, l rdmacm.Listener, n int, pd verbs.PD, p rdmacm.Params, region verbs.MR) error {
	for range n {
		cq, err := ctx.CreateCQ(1)
		if err != nil {
			return err
		}
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			return err
		}
		if err := accept(ctx, l, qp, p, remoteOf(region)); err != nil {
			return err
		}
	}
	return nil
}

// accept accepts one connection and sends the dialer the descriptions of the regions.
func accept(ctx verbs.Context, l rdmacm.Listener, qp verbs.QP, p rdmacm.Params, regions ...remote) error {
	req, err := l.Accept(clock.Never)
	if err != nil {
		return err
	}
	var private []byte
	for _, r := range regions {
		private = r.appendTo(private)
	}
	return req.Accept(qp, p, private, ctx.Runtime().Now().Add(dialPatience))
}
