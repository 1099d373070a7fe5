package sherman_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// orders is the configuration of a gardener, as JSON on the first line of its standard input. A
// gardener is a process on a host with a client of the tree; it writes lines of JSON to its
// standard output.
type orders struct {
	Servers []netip.Addr  `json:"servers"`
	Lease   time.Duration `json:"leaseNs"`
	// Warm are keys that are read before the gardener reports that it is ready.
	Warm uint64 `json:"warm,omitempty"`
	// Die is the place in an operation at which the gardener stops. It kills itself when it is told
	// to go on.
	Die place `json:"die,omitempty"`
	// Insert inserts N keys from Key on; Put and Get repeat on Key, N times or, with N 0, until it
	// is told to end.
	Do  string `json:"do"`
	Key uint64 `json:"key"`
	N   int    `json:"n,omitempty"`
}

// place is a moment in an operation.
type place string

const (
	// inside: the client has the lock and has read the page, and has posted none of its WRITEs.
	inside place = "inside"
	// halfSplit: the client has written the new page, to which no other page links; it has the
	// lock.
	halfSplit place = "halfSplit"
	// unadopted: the client has split the page and released the lock; the page above has no
	// separator for the new one.
	unadopted place = "unadopted"
)

// said is a line of a gardener's output.
type said struct {
	// What is ready, one of the places, or op for an operation that is complete.
	What string `json:"what"`
	// Owner and Acquisition are the tag of the last lock that the gardener requested.
	Owner       uint32 `json:"owner,omitempty"`
	Acquisition uint32 `json:"acquisition,omitempty"`
	// From and To are when the operation began and ended, by a clock that all processes of the
	// machine share, in ns.
	From int64  `json:"from,omitempty"`
	To   int64  `json:"to,omitempty"`
	Err  string `json:"err,omitempty"`
	// HandOvers and RTTs are the counters of the gardener's client.
	RTTs      int `json:"rtts,omitempty"`
	HandOvers int `json:"handOvers,omitempty"`
}

func (s *said) took() time.Duration { return time.Duration(s.To - s.From) }

// monotonic is a clock that all processes of the machine share.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// gardenerLife bounds the run time of a gardener.
const gardenerLife = 2 * time.Minute

// gardener is the state of a gardener in its own process.
type gardener struct {
	orders
	in  *bufio.Reader
	out *json.Encoder
	tag layout.Tag
	// fresh is set when a new page was written to which no page links. linked is set when a page
	// links to it.
	fresh, linked bool
}

func garden(in io.Reader, out io.Writer) (err error) {
	time.AfterFunc(gardenerLife, func() { os.Exit(3) })
	g := &gardener{in: bufio.NewReader(in), out: json.NewEncoder(out)}
	line, err := g.in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &g.orders)
	}
	if err != nil {
		return err
	}
	ctx, err := ipc.Open(ipc.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	n, err := sherman.NewNode(sherman.NodeConfig{Servers: g.Servers, Lease: g.Lease})
	if err != nil {
		return err
	}
	rt := ctx.Runtime()
	soon := func() clock.Time { return rt.Now().Add(time.Minute) }
	c, err := n.Open(sherman.Config{Context: watched{ctx, g}, Manager: unwrapped{ctx.Manager()}}, soon())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for k := range g.Warm {
		if _, err := c.Get(k, nil, soon()); err != nil && !errors.Is(err, kv.ErrNotFound) {
			return err
		}
	}
	if err := g.out.Encode(said{What: "ready"}); err != nil {
		return err
	}
	told := make(chan error, 1)
	wait := func() error {
		_, err := g.in.ReadBytes('\n')
		return err
	}
	if g.Do != "insert" && g.N == 0 {
		go func() { told <- wait() }()
	} else if err := wait(); err != nil { // one line to begin
		return err
	}
	return g.work(c, soon, told)
}

// work does operations until there are enough, or until it is told to end.
func (g *gardener) work(c *sherman.Client, soon func() clock.Time, told <-chan error) error {
	for i := uint64(0); g.N == 0 || i < uint64(g.N); i++ {
		select {
		case err := <-told:
			return err
		default:
		}
		s := said{What: "op", From: monotonic()}
		var err error
		switch g.Do {
		case "insert":
			err = c.Insert(g.Key+i, []byte("gardener"), soon())
		case "put":
			err = c.Put(g.Key, []byte("gardener"), soon())
		case "get":
			_, err = c.Get(g.Key, nil, soon())
		default:
			return fmt.Errorf("order %q", g.Do)
		}
		s.To = monotonic()
		if err != nil {
			s.Err = err.Error()
		}
		cost := c.LastCost()
		s.RTTs, s.HandOvers = cost.RTTs, cost.HandOvers
		if err := g.out.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// post observes a work request before the NIC gets it.
func (g *gardener) post(wrs []verbs.SendWR) {
	last := &wrs[len(wrs)-1]
	if last.Op == verbs.OpCmpSwap && last.CompareAdd == 0 {
		g.tag = layout.Tag(last.Swap)
	}
	release := len(wrs) > 1 && last.Op == verbs.OpWrite && last.SGL[0].Length == 8
	switch {
	case len(wrs) == 1 && last.Op == verbs.OpWrite && last.SGL[0].Length >= layout.MinPage:
		g.fresh = true
	case release && g.fresh:
		g.stop(halfSplit)
		g.fresh, g.linked = false, true
	case release:
		g.stop(inside)
	case g.linked:
		g.stop(unadopted)
		g.linked = false
	}
}

// stop stops the process at a place, if it is the one to die at, until the spec tells it to go on.
func (g *gardener) stop(at place) {
	if g.Die != at {
		return
	}
	_ = g.out.Encode(said{What: string(at), Owner: g.tag.Owner(), Acquisition: g.tag.Seq()})
	_, _ = g.in.ReadBytes('\n')
	_ = unix.Kill(unix.Getpid(), unix.SIGKILL) // SIGKILL cannot fail and does not return
	select {}
}

// watched is a context whose queue pairs report each work request to the gardener.
type watched struct {
	verbs.Context
	g *gardener
}

type watchedPD struct {
	verbs.PD
	g *gardener
}

type watchedQP struct {
	verbs.QP
	g *gardener
}

func (w watched) AllocPD() (verbs.PD, error) {
	pd, err := w.Context.AllocPD()
	return watchedPD{pd, w.g}, err
}

func (w watchedPD) CreateQP(i verbs.QPInit) (verbs.QP, error) {
	qp, err := w.PD.CreateQP(i)
	return watchedQP{qp, w.g}, err
}

func (w watchedQP) PostSend(wrs ...verbs.SendWR) error {
	w.g.post(wrs)
	return w.QP.PostSend(wrs...)
}

// unwrapped connects the queue pairs that are inside the watched ones.
type unwrapped struct{ rdmacm.Dialer }

func (u unwrapped) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if w, ok := qp.(watchedQP); ok {
		qp = w.QP
	}
	return u.Dialer.Dial(qp, to, service, p, private, deadline)
}
