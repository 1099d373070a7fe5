package insim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	incastService, incastReceiver = "incast", "ms0"
	// incastHosts is the largest number of hosts on which senders run. More senders share hosts.
	incastHosts = 96
	// incastMessage is the length of a WRITE in bytes, incastDepth how many of them are in flight.
	incastMessage, incastDepth = 256 << 10, 4
	// incastWindow is so large that congestion control, and not the window, limits a sender.
	incastWindow = 1 << 14
	// incastReady is when all connections have been made, and the first sender starts.
	incastReady = clock.Time(20 * time.Millisecond)
	// incastSlot is the window in which Jain's index is computed.
	incastSlot = time.Millisecond
	// incastTimeout is the code of the ACK timeout: 268 ms, longer than any queue.
	incastTimeout = 16
	// fcs is what a frame has on a link besides its bytes. Preamble and gap are left out, as in the
	// rates of congestion control.
	fcs = 4
	// cnpPriority is that of CNPs, which leave before data.
	cnpPriority = 6
)

// incastRun is a Congestion in progress.
type incastRun struct {
	load  experiment.Congestion
	rack  *simrack.Rack
	until clock.Time
	port  *markedPort
	// to is the receiver, timeout the code of the ACK timeout.
	to      string
	timeout uint8
}

// Congestion runs senders on a rack whose switch has, behind its program, egress queues with a rate.
func (p *Sim) Congestion(ctx context.Context, l experiment.Congestion) (out experiment.CongestionResult, err error) {
	hosts := min(l.Senders, incastHosts)
	s, err := simrack.PassiveRack(incastService, hosts, "", incastService, "")
	if err != nil {
		return out, err
	}
	r := &incastRun{load: l, to: incastReceiver, timeout: incastTimeout}
	for i := range s.Hosts {
		s.Hosts[i].Congestion = &l.Params
	}
	if l.Behind > 0 {
		first := l.Params
		first.RateOnFirstCNP = l.Behind
		s.Hosts[0].Congestion = &first
	}
	last := incastReady.Add(time.Duration(l.Senders-1) * l.Apart)
	r.until = last.Add(l.Span)
	if r.port, err = newMarkedPort(&l, hosts); err != nil {
		return out, err
	}
	r.port.run, r.port.from, r.port.counted = r, last, last.Add(l.Span/2)
	wrap := func(name string, n simnet.Node) simnet.Node {
		if name != rackfile.SwitchName {
			return n
		}
		r.port.Node = n
		return r.port
	}
	r.rack, err = simrack.New(s, simrack.Options{
		Seed: l.Seed, Rate: l.Params.MaxRate, Delay: l.Delay, Queue: 1 << 16, Window: incastWindow, Wrap: wrap, Controller: l.Controller, Cancelled: cancelled(ctx),
	})
	if err != nil {
		return out, err
	}
	defer r.rack.Close()
	r.lend()
	startClients(r.rack, l.Senders, hosts, r.sender)
	if err := run(ctx, r.rack); err != nil {
		return out, err
	}
	return r.result(), nil
}

// lend makes the receiver lend its memory.
func (r *incastRun) lend() {
	h := r.rack.Host(r.to)
	h.Go("memory", true, func(ctx verbs.Context) {
		r.rack.Stop(h.Lend(ctx, simrack.Passive{Bytes: incastMessage, Service: incastService, Switch: sceneSwitch}))
	})
}

// sender writes messages until the run ends.
func (r *incastRun) sender(h *simrack.Host, ctx verbs.Context, id int) error {
	return r.requests(h, ctx, id, Requests{Bytes: incastMessage, Depth: incastDepth})
}

// requests is sender for other requests.
func (r *incastRun) requests(h *simrack.Host, ctx verbs.Context, id int, w Requests) error {
	params := rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: r.timeout}
	if w.Read {
		params.RdAtomic = w.Depth
	}
	l, err := lineTo{incastService, w.Bytes, w.Depth, params}.dial(h, ctx, r.rack.Host(r.to), incastReady)
	if err != nil {
		return err
	}
	if w.Read {
		l.wr.Op = verbs.OpRead
	}
	l.rt.Sleep(incastReady.Add(time.Duration(id) * r.load.Apart).Sub(l.rt.Now()))
	return l.repeat(fmt.Sprintf("sender %d", id), w.Bytes, r.until, func(int) {})
}

// markedPort is the switch with egress queues behind its program.
type markedPort struct {
	simnet.Node
	run  *incastRun
	bank *portqueue.Bank
	sink int // the port to the receiver
	made packetio.Batch
	// from is when the last sender starts, counted when the measured time begins. slots has the bytes
	// of each sender's host in each window since from; queue the length of the queue at departures.
	from, counted clock.Time
	slots         [][]float64
	flows         map[[3]byte]int // senders by the queue pairs at the receiver
	queue         []int
	waiting, peak int // bytes in the queue now, and at most
	bytes         float64
	trace         uint64 // see CongestionResult.Trace
}

func newMarkedPort(l *experiment.Congestion, hosts int) (*markedPort, error) {
	cfg := portqueue.Config{Rate: l.Params.MaxRate, Overhead: fcs, Seed: l.Seed, Buffer: portqueue.MaxBuffer}
	for i := range cfg.Classes {
		cfg.Classes[i].XOFF = portqueue.MaxBuffer
	}
	cfg.Classes[0].ECN = portqueue.RED{KMin: l.KMin, KMax: l.KMax, PMax: int(l.PMax * portqueue.Million)}
	cfg.Classes[cnpPriority].Strict = true
	cfg.DSCP[l.Params.DSCP] = cnpPriority
	bank, err := portqueue.New(cfg, hosts+1)
	return &markedPort{bank: bank, sink: hosts, flows: map[[3]byte]int{}}, err
}

func (m *markedPort) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	m.Node.Frame(now, port, f, &m.made)
	m.forward(now, port, out)
}

func (m *markedPort) Tick(now clock.Time, out *packetio.Batch) {
	if m.Node.Deadline() <= now {
		m.Node.Tick(now, &m.made)
	}
	m.forward(now, -1, out)
}

func (m *markedPort) Deadline() clock.Time { return clock.Min(m.Node.Deadline(), m.bank.Deadline()) }

// forward queues what the switch has made, and lets leave what may.
func (m *markedPort) forward(now clock.Time, in int, out *packetio.Batch) {
	for _, f := range m.made.Frames {
		if m.bank.Offer(now, in, f.Port, f, "") == 0 && f.Port == m.sink {
			m.waiting += len(f.Data)
		}
	}
	m.made.Reset()
	first := len(out.Frames)
	m.bank.Due(now, out)
	for _, f := range out.Frames[first:] {
		if f.Port == m.sink {
			m.left(now, f.Data)
		}
	}
}

// qpnAt is where a RoCEv2 frame over IPv4 has the number of its destination queue pair: behind Ethernet
// 14, IPv4 20, UDP 8 and 5 bytes of the BTH.
const qpnAt = 14 + 20 + 8 + 5

// left counts a frame that leaves to the receiver.
func (m *markedPort) left(now clock.Time, frame []byte) {
	m.waiting -= len(frame)
	if now < incastReady || len(frame) < qpnAt+3 {
		return
	}
	m.peak = max(m.peak, m.waiting)
	if now < m.from || now >= m.run.until {
		return
	}
	slot := int(now.Sub(m.from) / incastSlot)
	for len(m.slots) <= slot {
		m.slots = append(m.slots, make([]float64, m.run.load.Senders))
	}
	qpn := [3]byte(frame[qpnAt:])
	flow, known := m.flows[qpn]
	if !known && len(m.flows) < m.run.load.Senders {
		flow, known = len(m.flows), true
		m.flows[qpn] = flow
	}
	size := float64(len(frame) + fcs)
	if known {
		m.slots[slot][flow] += size
	}
	if now >= m.counted {
		for _, v := range [2]int{flow, m.waiting} { // FNV-1a over two numbers
			m.trace = (m.trace ^ uint64(v)) * 1099511628211
		}
		m.queue = append(m.queue, m.waiting)
		m.bytes += size
	}
}

// fair is the index at which the shares of a window are taken for equal.
const fair = 0.95

func (r *incastRun) result() (out experiment.CongestionResult) {
	m := r.port
	sum, n := 0.0, 0
	out.JainMin = 1
	for i, rates := range m.slots {
		if time.Duration(i+1)*incastSlot > r.load.Span {
			break // not a whole window
		}
		j := experiment.Jain(rates)
		if out.Converged == 0 && j >= fair {
			out.Converged = time.Duration(i+1) * incastSlot
		}
		if m.from.Add(time.Duration(i)*incastSlot) >= m.counted {
			sum, n = sum+j, n+1
			out.JainMin = min(out.JainMin, j)
		}
	}
	out.Jain = sum / float64(max(n, 1))
	out.Utilisation = m.bytes * 8 / float64(r.load.Params.MaxRate) / r.until.Sub(m.counted).Seconds()
	slices.Sort(m.queue)
	at := func(share float64) int {
		if len(m.queue) == 0 {
			return 0
		}
		return m.queue[int(share*float64(len(m.queue)-1))]
	}
	out.Trace = m.trace
	out.P50, out.P90, out.P99, out.Peak = at(0.5), at(0.9), at(0.99), m.peak
	for _, h := range r.rack.Hosts() {
		c := h.Counters()
		out.Marked, out.Sent = out.Marked+c.RxMarked, out.Sent+c.TxCnp
		out.Handled, out.Again = out.Handled+c.RxCnp, out.Again+c.RetransPkts
	}
	out.CNPs = float64(out.Sent) / r.until.Sub(incastReady).Seconds() / float64(r.load.Senders)
	return out
}
