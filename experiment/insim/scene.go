package insim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// scenePriority is that of data, and the DSCP that gives it; sceneApart that of hosts with a priority of their
	// own. ect is what a TOS says of packets that may be marked.
	scenePriority, sceneApart, ect = 3, 5, 2
	// sceneSwitch is the service of a server to which the switch connects.
	sceneSwitch = "switch"
	// sceneTimeout is the code of the ACK timeout: 1 ms, some round trips with a full queue.
	sceneTimeout = 8
	// sceneMessage is the length of the WRITEs of a flow without messages of its own, sceneDepth how many
	// WRITEs of a flow are in flight.
	sceneMessage, sceneDepth = 64 << 10, 16
	// sceneParts is into how many parts the measured half is divided to see whether it is steady.
	sceneParts = 2
	// sceneSample is how far samples of the queue are apart.
	sceneSample = 10 * time.Microsecond
	// sceneDrain is how long messages may take after the end of the span.
	sceneDrain = 200 * time.Millisecond
	// A frame of the path MTU 1024: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4, preamble and gap 20.
	scenePayload, sceneFrame = 1024, 1024 + 82
)

// sceneFile is the rack of a Scene.
func sceneFile(s *experiment.Scene) string {
	queue := fmt.Sprintf("limit: %d", s.Limit)
	if s.Lossless {
		queue = fmt.Sprintf("lossless: true, xoff: %d", s.XOFF)
	}
	if m := s.Marks; m.KMax > 0 {
		queue += fmt.Sprintf(", ecn: {kmin: %d, kmax: %d, pmax: %g%%}", m.KMin, m.KMax, 100*m.PMax)
	}
	hosts := ""
	for i := range s.Hosts {
		tos := scenePriority<<2 | ect
		if slices.ContainsFunc(s.Flows, func(f experiment.SceneFlow) bool { return f.From == i && f.Apart }) {
			tos = sceneApart<<2 | ect
		}
		hosts += fmt.Sprintf("\n  - {name: h%d, role: memory, memory: 8MiB, tos: %d}", i, tos)
	}
	program := ""
	fabric := ""
	if s.Fabric.Leaves > 0 {
		fabric = fmt.Sprintf("\nfabric: {leaves: %d, spines: %d}", s.Fabric.Leaves, s.Fabric.Spines)
	}
	if s.Share != "" {
		program = fmt.Sprintf("\n  program: swordbox\n  rules: [{server: h0, action: move, service: %s, depth: %d, shards: %d, slow: %s}]", sceneSwitch, experiment.SharedDepth, max(1, s.Shards), s.Share)
	}
	return strings.NewReplacer("RATE", congestion.RateText(s.Params.MaxRate), "QUEUE", queue, "SEED", fmt.Sprint(s.Seed), "HOSTS", hosts, "PROGRAM", program, "FABRIC", fabric).Replace(`
name: scene
seed: SEED
mtu: 1280FABRIC
switch:PROGRAM
  ports: {rate: RATE, buffer: 64MiB, reaction: 0s}
  dscp: {3: 3, 5: 5, 48: 6}
  queues:
    3: {QUEUE}
    5: {strict: true}
    6: {strict: true}
hosts:HOSTS
`)
}

// sceneRun is a Scene in progress.
type sceneRun struct {
	scene *experiment.Scene
	rack  *simrack.Rack
	// half and until bound the measured time.
	half, until clock.Time
	// bytes has, for each flow, what was acknowledged in each part of the measured time; times how long
	// messages took, with what each would take alone.
	bytes [][sceneParts]float64
	slow  []float64
	times []time.Duration
	// pauses at the begin of the measured time.
	before uint64
	queue  []int64 // to host 0, each sceneSample of the measured time
}

// Scene runs flows between hosts of a rack whose switch has the queues of a rack file.
func (p *Sim) Scene(ctx context.Context, s experiment.Scene) (out experiment.SceneResult, err error) {
	opt := simrack.Options{Seed: s.Seed, Delay: s.Delay, Window: s.Window}
	opt.Recovery.Recovery = transport.Recovery{Kind: s.Recovery, Low: 100 * time.Microsecond, High: 320 * time.Microsecond}
	if s.Recovery != 0 {
		opt.Recovery.AckEvery = 1
	}
	run0 := &sceneRun{scene: &s, half: incastReady.Add(s.Span / 2), until: incastReady.Add(s.Span), bytes: make([][sceneParts]float64, len(s.Flows))}
	r, err := newSceneRack(ctx, &s, opt)
	if err != nil {
		return out, err
	}
	defer r.Close()
	run0.rack = r
	r.At(run0.half, func() {
		run0.before = pausesOf(run0.rack)
		run0.sample()
	})
	if s.Loss > 0 {
		rule := fault.Rule{ID: "loss", Link: "h0", Kind: fault.Loss, Dir: fault.Down, Probability: s.Loss}
		r.At(incastReady, func() { r.Host("h0").SetFaults([]fault.Rule{rule}) })
	}
	for i := range s.Hosts {
		h := r.Host(fmt.Sprintf("h%d", i))
		h.Go("memory", true, func(ctx verbs.Context) {
			r.Stop(h.Lend(ctx, simrack.Passive{Bytes: 4 << 20, Service: incastService, Switch: sceneSwitch}))
		})
	}
	for i := range s.Flows {
		start(r, fmt.Sprintf("h%d", s.Flows[i].From), fmt.Sprintf("flow%d", i), func(h *simrack.Host, ctx verbs.Context) error { return run0.flow(h, ctx, i) })
	}
	if err := run(ctx, r); err != nil {
		return out, err
	}
	return run0.result(), nil
}

func newSceneRack(ctx context.Context, s *experiment.Scene, opt simrack.Options) (*simrack.Rack, error) {
	spec, err := rackfile.Parse([]byte(sceneFile(s)))
	if err != nil {
		return nil, err
	}
	if s.Params.Algorithm != congestion.AlgorithmNone {
		for i := range spec.Hosts {
			spec.Hosts[i].Congestion = &s.Params
			if slices.ContainsFunc(s.Flows, func(f experiment.SceneFlow) bool { return f.From == i && f.Exempt }) {
				deaf := s.Params
				deaf.Algorithm = congestion.AlgorithmNone
				spec.Hosts[i].Congestion = &deaf
			}
		}
	}
	opt.Cancelled = cancelled(ctx)
	return simrack.New(spec, opt)
}

// flow sends the messages of a flow, or messages without end.
func (r *sceneRun) flow(h *simrack.Host, ctx verbs.Context, id int) error {
	f := &r.scene.Flows[id]
	longest := r.each(id)
	for _, m := range f.Messages {
		longest = max(longest, m.Bytes)
	}
	params := rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: cmp.Or(r.scene.Timeout, sceneTimeout)}
	if f.Atomic || f.Read || f.Lock {
		params.RdAtomic = r.depth()
	}
	l, err := lineTo{incastService, longest, r.depth(), params}.dial(h, ctx, r.rack.Host(fmt.Sprintf("h%d", f.To)), incastReady)
	if err != nil {
		return err
	}
	s := &sceneSender{run: r, id: id, line: l}
	switch {
	case f.Atomic:
		s.wr.Op = verbs.OpCmpSwap
	case f.Read:
		s.wr.Op = verbs.OpRead
	}
	s.rt.Sleep(incastReady.Sub(s.rt.Now()))
	if f.Lock {
		return s.locks()
	}
	if f.Messages == nil {
		return s.endless()
	}
	return s.listed(f.Messages)
}

// each is the length of the WRITEs of a flow without messages, depth how many of a flow are in flight.
func (r *sceneRun) each(id int) int { return cmp.Or(r.scene.Flows[id].Each, sceneMessage) }
func (r *sceneRun) depth() int      { return cmp.Or(r.scene.Depth, sceneDepth) }

// sceneSender sends the messages of one flow.
type sceneSender struct {
	run *sceneRun
	id  int
	*line
}

func (s *sceneSender) post(n int) error {
	s.wr.SGL = []verbs.SGE{s.mr.SGE(0, n)}
	return s.qp.PostSend(s.wr)
}

// poll waits until the time, and returns the completions.
func (s *sceneSender) poll(until clock.Time) ([]verbs.WC, error) {
	if s.cq.Wait(until) != nil {
		return nil, nil // the time has come
	}
	n, err := s.cq.Poll(s.done)
	for _, wc := range s.done[:n] {
		if wc.Status != verbs.Success {
			return nil, fmt.Errorf("flow %d: a WRITE ended with %v", s.id, wc.Status)
		}
	}
	return s.done[:n], err
}

func (s *sceneSender) endless() error {
	r := s.run
	n := r.each(s.id)
	return s.repeat(fmt.Sprintf("flow %d", s.id), n, r.until, func(ended int) {
		if now := s.rt.Now(); now >= r.half && now < r.until {
			part := int(now.Sub(r.half) * sceneParts / r.until.Sub(r.half))
			r.bytes[s.id][part] += float64(ended * n)
		}
	})
}

// listed sends each message at its time, at most depth at once, and notes how long each took.
func (s *sceneSender) listed(list []experiment.SceneMessage) error {
	r := s.run
	end := r.until.Add(sceneDrain)
	for sent, got := 0, 0; got < len(list); {
		now := s.rt.Now()
		for sent < len(list) && sent-got < r.depth() && incastReady.Add(list[sent].At) <= now {
			if err := s.post(list[sent].Bytes); err != nil {
				return err
			}
			sent++
		}
		until := end
		if sent < len(list) && sent-got < r.depth() {
			until = clock.Min(until, incastReady.Add(list[sent].At))
		}
		done, err := s.poll(until)
		if err != nil {
			return err
		}
		now = s.rt.Now()
		for range done {
			m := list[got]
			took := now.Sub(incastReady.Add(m.At))
			r.times = append(r.times, took)
			r.slow = append(r.slow, float64(took)/float64(r.alone(s.id, m.Bytes)))
			got++
		}
		if now >= end {
			return nil
		}
	}
	return nil
}

// alone returns how long a message of a flow takes that is alone in the rack: the time of its frames on its links, each of
// which begins behind the first frame of the one before, and the round trip.
func (r *sceneRun) alone(id, bytes int) time.Duration {
	links := int64(2)
	if f := &r.scene.Flows[id]; r.scene.Fabric.Leaves > 0 && f.From%r.scene.Fabric.Leaves != f.To%r.scene.Fabric.Leaves {
		links = 4
	}
	packets := int64(bytes+scenePayload-1) / scenePayload
	bits := (packets + links - 1) * sceneFrame * 8
	return time.Duration(bits*int64(time.Second)/r.scene.Params.MaxRate) + time.Duration(2*links)*r.scene.Delay
}

// sample notes the queue to host 0 until the end of the measured time.
func (r *sceneRun) sample() {
	now := r.rack.Now()
	r.queue = append(r.queue, r.rack.Queues(0).Port(now, 0)[scenePriority].Bytes)
	if next := now.Add(sceneSample); next < r.until {
		r.rack.At(next, r.sample)
	}
}

// pausesOf returns how many pause frames the switches have sent.
func pausesOf(r *simrack.Rack) (n uint64) {
	eachPort(r, func(st *portqueue.Status) { n += st.TxPause })
	return n
}

// eachPort calls f for the data's queue of each port of each switch.
func eachPort(r *simrack.Rack, f func(*portqueue.Status)) {
	now := r.Now()
	for n := range r.Spec.SwitchNames() {
		q := r.Queues(n)
		for i := range q.Ports() {
			st := q.Port(now, i)[scenePriority]
			f(&st)
		}
	}
}

func sumOf(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum
}

func (r *sceneRun) result() (out experiment.SceneResult) {
	out.Messages = len(r.times)
	for _, f := range r.scene.Flows {
		out.Posted += len(f.Messages)
	}
	parts := [sceneParts]float64{}
	line := float64(r.scene.Params.MaxRate) * scenePayload / sceneFrame / 8 * (r.scene.Span / 2).Seconds()
	for _, b := range r.bytes {
		sum := 0.0
		for k, n := range b {
			parts[k] += n
			sum += n
		}
		out.Shares = append(out.Shares, sum/line)
	}
	if m := max(parts[0], parts[1]); m > 0 && !r.scene.Restless {
		out.Unsteady = (m - min(parts[0], parts[1])) / m
	}
	eachPort(r.rack, func(st *portqueue.Status) {
		out.Dropped += st.Dropped
		out.Peak = max(out.Peak, st.Peak)
	})
	for _, h := range r.rack.Hosts() {
		out.Again += h.Counters().RetransPkts
	}
	if slices.Sort(r.queue); len(r.queue) > 0 {
		out.Queue = r.queue[len(r.queue)*9/10]
	}
	out.Pauses = pausesOf(r.rack)
	shared := r.rack.Counters("hardened")
	out.Told, out.Passed = shared["cnps_received"], shared["cnps"]
	if len(r.times) == 0 {
		out.Pauses -= r.before // of the measured time alone
		return out
	}
	for _, t := range r.times {
		out.Mean += t
	}
	out.Mean /= time.Duration(len(r.times))
	slices.Sort(r.times)
	out.Tail = r.times[len(r.times)*99/100]
	if len(r.slow) > 0 { // not waits for locks
		out.Slowdown = sumOf(r.slow) / float64(len(r.slow))
		slices.Sort(r.slow)
		out.P99 = r.slow[len(r.slow)*99/100]
	}
	return out
}
