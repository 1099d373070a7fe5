// Package alltoall lets every host of a simulated rack send to every other one: the load by which the size
// of simulations is measured (docs/guide/large.md).
package alltoall

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Load is a run: each host writes one message of Size bytes to each other host, over one connection to each,
// and has Flight messages in flight.
type Load struct {
	Rack   *rackfile.Rack
	Size   int // bytes, a multiple of 8
	Flight int
	Rate   int64 // of each link, in bits per second
	Seed   uint64
	// Workers is how many processors run the leaves; 0 means one for the whole rack in one piece.
	Workers int
}

// Report is what a run has done, and what it has cost.
type Report struct {
	Hosts    int           `json:"hosts"`
	Switches int           `json:"switches"`
	Workers  int           `json:"workers"`
	QPs      int           `json:"queuePairs"`
	Messages int           `json:"messages"`
	Took     time.Duration `json:"virtualTime"` // from the first post to the last completion
	Gbps     float64       `json:"gbpsPerHost"` // payload that a host has sent
	Resent   uint64        `json:"resent"`      // packets that NICs have sent again
	Events   uint64        `json:"events"`
	Windows  uint64        `json:"windows"`
	Wall     time.Duration `json:"wallTime"`
	// EventsPerSecond is for all workers together. HostBytes and QPBytes are memory of the simulation for
	// one more host, without queue pairs, and for one more queue pair.
	EventsPerSecond float64 `json:"eventsPerSecond"`
	HostBytes       int64   `json:"hostBytes"`
	QPBytes         int64   `json:"queuePairBytes"`
}

// node is the load on one host.
type node struct {
	host  *simrack.Host
	ctx   verbs.Context
	cq    verbs.CQ
	pd    verbs.PD
	mr    verbs.MR // the message, and behind it the room for those of the others
	qps   []verbs.QP
	peers []*node // by queue pair
	end   clock.Time
	err   error
}

// Run runs a load until all messages have arrived or ctx ends, and checks what has arrived.
func Run(ctx context.Context, l Load) (*Report, error) {
	if l.Size < 8 || l.Size%8 != 0 || l.Flight < 1 || len(l.Rack.Hosts) < 2 {
		return nil, errors.New("alltoall: want at least two hosts, a size that is a multiple of 8, and a message in flight")
	}
	rep := &Report{Hosts: len(l.Rack.Hosts), Switches: len(l.Rack.SwitchNames()), Workers: l.Workers}
	empty := heap()
	r, err := simrack.New(l.Rack, simrack.Options{
		Seed: l.Seed, Rate: l.Rate, Queue: queue, Datagrams: true, Cancelled: func() bool { return ctx.Err() != nil },
	})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	hosts := heap()
	nodes, err := l.connect(r)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		rep.QPs += len(n.qps)
	}
	rep.HostBytes = (hosts - empty) / int64(rep.Hosts)
	rep.QPBytes = (heap() - hosts - int64(2*l.Size*rep.Hosts)) / int64(rep.QPs)
	if err := l.send(r, nodes, rep); errors.Is(err, simnet.ErrCancelled) {
		return nil, ctx.Err()
	} else if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		if err := errors.Join(n.err, l.check(nodes, i)); err != nil {
			return nil, fmt.Errorf("host %s: %w", n.host.Spec.Name, err)
		}
		rep.Resent += n.host.Counters().RetransPkts
	}
	return rep, nil
}

// queue is how many frames may wait for a link: so many that hardly one is lost, as with flow control.
const queue = 1 << 16

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// connect makes the connections, which takes no virtual time.
func (l *Load) connect(r *simrack.Rack) ([]*node, error) {
	var nodes []*node
	for i, h := range r.Hosts() {
		n := &node{host: h, ctx: h.Context("load")}
		if err := n.open(l, i); err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Spec.Name, err)
		}
		nodes = append(nodes, n)
	}
	for i := range nodes {
		for _, to := range nodes[i+1:] {
			if err := nodes[i].join(to); err != nil {
				return nil, fmt.Errorf("%s to %s: %w", nodes[i].host.Spec.Name, to.host.Spec.Name, err)
			}
		}
	}
	return nodes, nil
}

func (n *node) open(l *Load, i int) (err error) {
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return err
	}
	if n.cq, err = n.ctx.CreateCQ(l.Flight); err != nil {
		return err
	}
	if n.mr, err = n.pd.RegMR(nil, 2*l.Size, verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return err
	}
	message := make([]byte, 0, l.Size)
	for k := range l.Size / 8 {
		message = binary.BigEndian.AppendUint64(message, word(i, k))
	}
	return n.mr.WriteAt(message, 0)
}

// word is word k of the message of host i.
func word(i, k int) uint64 { return uint64(i+1)<<32 | uint64(k) }

// join connects the host with another one.
func (n *node) join(to *node) error {
	ends := [2]*node{n, to}
	var qps [2]verbs.QP
	var at [2]rdmacm.Endpoint
	for i, n := range ends {
		var err error
		if qps[i], err = n.pd.CreateQP(verbs.QPInit{SendCQ: n.cq, RecvCQ: n.cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1}); err != nil {
			return err
		}
		if at[i], err = rdmacm.LocalEndpoint(n.ctx, qps[i], ends[1-i].host.Addr(), rdmacm.Params{}); err != nil {
			return err
		}
	}
	for i, n := range ends {
		if err := rdmacm.BringUp(n.ctx, qps[i], rdmacm.Params{}, at[i], at[1-i]); err != nil {
			return err
		}
		n.qps, n.peers = append(n.qps, qps[i]), append(n.peers, ends[1-i])
	}
	return nil
}

// send lets all hosts send.
func (l *Load) send(r *simrack.Rack, nodes []*node, rep *Report) error {
	began := r.Now()
	var list []verbs.Runtime
	for i, n := range nodes {
		n.ctx.Runtime().Go("sender", func() { n.err = n.run(l, i) })
		list = append(list, n.ctx.Runtime())
	}
	nodes[0].host.Go("run", false, func(verbs.Context) {
		if l.Workers > 0 {
			if err := r.RunApart(l.Workers, list...); err != nil {
				r.Stop(err)
				return
			}
		}
		for _, rt := range list {
			rt.Wait()
		}
	})
	before, events := time.Now(), r.Events()
	err := r.Run()
	rep.Wall, rep.Events, rep.Windows = time.Since(before), r.Events()-events, r.Windows()
	rep.EventsPerSecond = float64(rep.Events) / rep.Wall.Seconds()
	rep.Messages = rep.QPs
	for _, n := range nodes {
		rep.Took = max(rep.Took, n.end.Sub(began))
	}
	rep.Gbps = float64(len(nodes)-1) * float64(l.Size) * 8 / rep.Took.Seconds() / 1e9
	return err
}

// run sends to the hosts behind this one first, so that no host is the first of all.
func (n *node) run(l *Load, self int) error {
	posted, done := 0, 0
	for done < len(n.qps) {
		for ; posted < len(n.qps) && posted-done < l.Flight; posted++ {
			k := (self + posted) % len(n.qps)
			err := n.qps[k].PostSend(verbs.SendWR{
				Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{{Addr: n.mr.Addr(), Length: uint32(l.Size), LKey: n.mr.LKey()}},
				RemoteAddr: n.peers[k].mr.Addr() + uint64(l.Size), RKey: n.peers[k].mr.RKey(),
			})
			if err != nil {
				return err
			}
		}
		if err := n.cq.Wait(clock.Never); err != nil {
			return err
		}
		var list [16]verbs.WC
		k, err := n.cq.Poll(list[:])
		if err != nil {
			return err
		}
		for i := range k {
			if list[i].Status != verbs.Success {
				return fmt.Errorf("a WRITE ended with %v", list[i].Status)
			}
		}
		done += k
	}
	n.end = n.ctx.Runtime().Now()
	return nil
}

// check reports whether each word that host i has got is one that another host has sent to that place.
func (l *Load) check(nodes []*node, i int) error {
	got := make([]byte, l.Size)
	if err := nodes[i].mr.ReadAt(got, l.Size); err != nil {
		return err
	}
	for k := range l.Size / 8 {
		w := binary.BigEndian.Uint64(got[8*k:])
		if from := int(w>>32) - 1; uint32(w) != uint32(k) || from < 0 || from >= len(nodes) || from == i {
			return fmt.Errorf("word %d is %#x, which no other host has sent there", k, w)
		}
	}
	return nil
}
