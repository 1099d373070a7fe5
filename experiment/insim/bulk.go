package insim

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	bulkService = "bulk"
	// bulkMessage is the length of a WRITE of a bulk sender, bulkDepth how many of them are in flight.
	bulkMessage, bulkDepth = 64 << 10, 8
	// bulkQueue is how many bytes a queue without PFC has, bulkXOFF how many of a host's the switch has when it
	// pauses the host.
	bulkQueue, bulkXOFF = 240_000, 100_000
	// bulkTimeout is the code of the ACK timeout of bulk senders: 17 ms.
	bulkTimeout = 12
	// bulkPatience is how long an operation beside bulk senders may take: a lost packet costs an ACK timeout of 134 ms,
	// and may be lost again. bulkLease is the lease of a tree's nodes, which must be longer than such stalls, because a
	// node whose lease ends is fenced.
	bulkPatience, bulkLease = 10 * time.Second, 5 * time.Second
)

// bulkOn reports whether the load has something beside its clients.
func bulkOn(b experiment.Bulk) bool { return b != (experiment.Bulk{}) }

func bulkSenders(b experiment.Bulk, servers int) int {
	if !bulkOn(b) || b.Control == experiment.BulkIdle {
		return 0
	}
	return experiment.BulkSenders * servers
}

// bulkHosts are the lines of a rack file with the hosts of bulk senders. They follow its other hosts.
func bulkHosts(b experiment.Bulk, servers int) string {
	n := bulkSenders(b, servers)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("  - {name: \"bulk[0-%d]\", role: compute}\n", n-1)
}

// bulkSwitch is the part of a rack file with the ports and queues; "" if they have none. The marks are those of the
// DCQCN paper; they have no effect on NICs without congestion control.
func bulkSwitch(b experiment.Bulk) string {
	if !bulkOn(b) {
		return ""
	}
	queue := fmt.Sprintf("limit: %d", bulkQueue)
	if b.Control == experiment.BulkPFC {
		queue = fmt.Sprintf("lossless: true, xoff: %d", bulkXOFF)
	}
	return fmt.Sprintf("switch:\n  ports: {rate: %s, buffer: 64MiB, reaction: 0s}\n  dscp: {3: 3, 48: 6}\n  queues:\n    3: {%s, ecn: {kmin: 5000, kmax: 200000, pmax: 1%%}}\n    6: {strict: true}\n",
		congestion.RateText(experiment.BulkRate), queue)
}

// congest gives the hosts of a rack the priority of the queue, and the congestion control and the recovery of b.
func congest(s *rackfile.Rack, opt *simrack.Options, b experiment.Bulk) {
	if !bulkOn(b) {
		return
	}
	p, _ := congestion.Profile(congestion.ProfilePaper, experiment.BulkRate)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.TOS = scenePriority<<2 | ect
		if b.Control == experiment.BulkDCQCN || b.Control == experiment.BulkPFC {
			h.Congestion = &p
		}
	}
	if b.Recovery != selective.GoBackN {
		opt.Recovery.Recovery = transport.Recovery{Kind: b.Recovery, Low: 100 * time.Microsecond, High: 320 * time.Microsecond}
		opt.Recovery.AckEvery = 1
	}
}

// bulk starts the bulk senders, which begin to send at the time warm, and the recording of the clients' operations.
// The keys are loaded, each with the value of its own number.
func (w *workload) bulk(b experiment.Bulk, servers int, warm clock.Time) {
	if !bulkOn(b) {
		return
	}
	w.cfg.Patience, w.servers = bulkPatience, servers
	w.history = kv.NewHistory()
	loaded := kv.Record(kv.NewMap(w.cfg.Value), w.history, -1, w.rack.Now)
	for key := range w.cfg.Keys {
		w.rack.Stop(loaded.Insert(key, kv.MakeValue(key, key, w.cfg.Value)[:w.cfg.Value], 0))
	}
	if bulkSenders(b, servers) == 0 {
		return
	}
	for i := range servers {
		h := w.rack.Host(fmt.Sprintf("ms%d", i))
		h.Go("bulk memory", true, func(ctx verbs.Context) {
			w.rack.Stop(h.Lend(ctx, simrack.Passive{Bytes: bulkMessage, Service: bulkService}))
		})
	}
	until := warm.Add(w.cfg.Warmup + w.cfg.Duration)
	for i := range bulkSenders(b, servers) {
		start(w.rack, fmt.Sprintf("bulk%d", i), "bulk", func(h *simrack.Host, ctx verbs.Context) error {
			return w.bulkSend(h, ctx, w.rack.Host(fmt.Sprintf("ms%d", i%servers)), warm, until)
		})
	}
}

// bulkSend WRITEs to a host from one time until another.
func (w *workload) bulkSend(h *simrack.Host, ctx verbs.Context, to *simrack.Host, from, until clock.Time) error {
	l, err := lineTo{bulkService, bulkMessage, bulkDepth, rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: bulkTimeout}}.dial(h, ctx, to, from)
	if err != nil {
		return err
	}
	l.rt.Sleep(from.Sub(l.rt.Now()))
	return l.repeat("bulk sender", bulkMessage, until, func(n int) {
		if l.rt.Now() >= from.Add(w.cfg.Warmup) {
			w.sent += n * bulkMessage
		}
	})
}

// bulkShare is the share of the ports' rate that bulk senders have had while operations were counted.
func (w *workload) bulkShare(servers int) float64 {
	const bits = 8
	return bits * float64(w.sent) / experiment.BulkRate / float64(servers) / w.cfg.Duration.Seconds()
}
