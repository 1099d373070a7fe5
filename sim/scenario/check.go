package scenario

import (
	"fmt"
	"reflect"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
)

// addCounters adds the counters of b to those of a: the fields of type uint64 of two structs.
func addCounters[T any](a, b *T) {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		if f := va.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(f.Uint() + vb.Field(i).Uint())
		}
	}
}

// nonZero returns the counters of c that are not zero, by their names.
func nonZero(c *metrics.NIC) map[string]uint64 {
	out := make(map[string]uint64)
	for _, s := range metrics.Samples(c) {
		if s.Value > 0 {
			out[s.Name] = s.Value
		}
	}
	return out
}

// addLinks adds the counters of both directions of the link l to s.
func addLinks(s *simnet.LinkStats, l *simnet.Link) {
	for _, d := range []fault.Dir{fault.Up, fault.Down} {
		st := l.Stats(d)
		addCounters(s, &st)
	}
}

// checkConservation compares what each NIC has counted with what its link has carried: every frame
// that arrived was accepted, or dropped and counted under a reason. A frame whose addresses or
// ports were corrupted may be counted by no NIC.
func (e *env) checkConservation() error {
	var all simnet.LinkStats
	for _, h := range e.rack.Hosts() {
		addLinks(&all, h.Link())
	}
	corrupted := all.Corrupted
	for _, h := range e.rack.Hosts() {
		c := h.Counters()
		up, down := h.Link().Stats(fault.Up), h.Link().Stats(fault.Down)
		if c.SentPkts != up.Sent {
			return fmt.Errorf("%s counted %d packets sent, its link saw %d", h.Spec.Name, c.SentPkts, up.Sent)
		}
		seen := c.RcvdPkts + c.RxIcrcErr + c.RxMalformed + c.RxUnknownQP + c.RxWrongPeer + c.RxNotMine +
			c.RxUnsupported + c.RxPkeyErr + c.RxCnp + c.RxCnpIgnored + down.Pauses
		if seen > down.Delivered || seen+corrupted < down.Delivered {
			return fmt.Errorf("%s accounts for %d frames, its link delivered %d (%d corrupted on all links)",
				h.Spec.Name, seen, down.Delivered, corrupted)
		}
	}
	return nil
}

// checkAtomics compares the number of atomics that a host executed with the number that its clients
// requested: each must be executed exactly once.
func (e *env) checkAtomics(host string, want int) error {
	c := e.rack.Host(host).Counters()
	if c.RxAtomicRequests != uint64(want) {
		return fmt.Errorf("%s executed %d atomics, its clients asked for %d", host, c.RxAtomicRequests, want)
	}
	return nil
}

// keepsPackets reports whether no queue of the rack drops packets: its links, of this rate if they have
// no queues in front, or their queues.
func (e *env) keepsPackets(rate int64) bool {
	if e.congested != nil {
		return e.congested.pfc
	}
	return rate == 0
}

// checkQuiet returns an error if a NIC has retransmitted packets or counted errors. It is called
// after runs in which no packet was lost or delayed.
func (e *env) checkQuiet() error {
	var c metrics.NIC
	for _, h := range e.rack.Hosts() {
		hc := h.Counters()
		addCounters(&c, &hc)
	}
	if c.SendRnrErr > 0 {
		return nil // a receiver ran out of posted receives in a burst of messages: then retransmissions are right
	}
	for name, n := range map[string]uint64{
		"roce_retrans_pkts": c.RetransPkts, "packet_seq_err": c.PacketSeqErr, "local_ack_timeout_err": c.LocalAckTimeoutErr,
		"duplicate_request": c.DuplicateRequest, "out_of_seq_request": c.OutOfSequence, "rx_icrc_encapsulated": c.RxIcrcErr,
	} {
		if n != 0 {
			return fmt.Errorf("nothing was lost, delayed or late, but %s is %d", name, n)
		}
	}
	return nil
}

// asDamage is called when a run under published rules, or of a published store, has ended with err.
// Damage is not a failure of the run: asDamage writes into the report what damage returns for err.
// It returns err only if the rack was not built, so that nothing ran.
func (e *env) asDamage(err error, damage func(error) string) error {
	if err == nil || e.rack == nil {
		return err
	}
	e.report.Damage = damage(err)
	e.note("%s", err)
	return nil
}

// finishNet fills in the report and ends the network of a run without a rack.
func (e *env) finishNet(net *simnet.Net) {
	e.report.Events = net.Events()
	for _, l := range net.Links() {
		addLinks(&e.report.Links, l)
	}
	if e.opt.Hash {
		e.report.Hash = e.hash.Sum()
	}
	net.Close()
	if e.rec != nil {
		if err := e.rec.Close(); err != nil {
			e.note("capture: %v", err)
		}
	}
}

// finish fills in the report and closes the rack.
func (e *env) finish() {
	if e.rack == nil {
		return
	}
	e.report.Events = e.rack.Events()
	for _, h := range e.rack.Hosts() {
		c := h.Counters()
		addCounters(&e.report.Counters, &c)
		addLinks(&e.report.Links, h.Link())
	}
	e.report.Activity = nonZero(&e.report.Counters)
	if e.opt.Hash {
		e.report.Hash = e.hash.Sum()
	}
	e.rack.Close()
	if e.rec != nil {
		if err := e.rec.Close(); err != nil && e.report.Err == nil {
			e.report.Err = err
		}
	}
}
