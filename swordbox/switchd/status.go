package switchd

import (
	"os"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// PortState says whether a port can be used.
type PortState string

// States of a port.
const (
	PortUp        PortState = "up"
	PortNoCarrier PortState = "no carrier"
	PortMissing   PortState = "missing"
)

// Status is what GET /status answers.
type Status struct {
	Rack    string        `json:"rack"`
	Program string        `json:"program"`
	PID     int           `json:"pid"`
	Uptime  time.Duration `json:"uptime"`
	Ports   []PortStatus  `json:"ports"`
	// Partition lists the groups of hosts that are kept apart; empty if none are.
	Partition [][]string `json:"partition,omitempty"`
	// Captures is how many captures run, CaptureLost the packets that they were too slow for.
	Captures    int    `json:"captures"`
	CaptureLost uint64 `json:"captureLost"`
	// Delayed is how many frames faults hold back now.
	Delayed int `json:"delayed"`
}

// PortStatus describes one port. Rates are of the last full second.
type PortStatus struct {
	Host  string    `json:"host"`
	Port  string    `json:"port"`
	State PortState `json:"state"`
	// Error says why a port is missing.
	Error        string `json:"error,omitempty"`
	RxPacketRate uint64 `json:"rxPacketsPerSecond"`
	RxBitRate    uint64 `json:"rxBitsPerSecond"`
	TxPacketRate uint64 `json:"txPacketsPerSecond"`
	TxBitRate    uint64 `json:"txBitsPerSecond"`
	// Faults are the ids of the rules at work on the link.
	Faults []string `json:"faults,omitempty"`
}

// Counters is what GET /counters answers.
type Counters struct {
	Switch pipeline.Counters `json:"switch"`
	Ports  []PortCounters    `json:"ports"`
	// Lost are drops of packets that came in at no port.
	Lost map[pipeline.Reason]uint64 `json:"lost,omitempty"`
}

// PortCounters count what passed one port.
type PortCounters struct {
	Host string `json:"host"`
	pipeline.PortCounters
	// SentPackets and SentBytes went through the egress queue to the link.
	SentPackets uint64 `json:"sentPackets"`
	SentBytes   uint64 `json:"sentBytes"`
	// RxRing counts frames that found the port's receive ring full.
	RxRing uint64 `json:"rxRingDropped"`
}

// Status describes the switch.
func (d *Daemon) Status() (s Status, err error) {
	err = d.Do(func() {
		s = Status{
			Rack: d.cfg.Rack, Program: d.sw.Spec().Name, PID: os.Getpid(), Uptime: time.Duration(d.now),
			Partition: slices.Clone(d.groups), Delayed: len(d.delays.heap),
		}
		s.Captures, s.CaptureLost = d.hub.Readers()
		rules := d.activeRules()
		for i := range d.ports {
			if d.hosts[i] == "" {
				continue
			}
			p := &d.ports[i]
			ps := PortStatus{
				Host: d.hosts[i], Port: d.links[i].Ifname, State: PortUp, Faults: rules[d.hosts[i]],
				RxPacketRate: p.rate.rxPackets, RxBitRate: p.rate.rxBits,
				TxPacketRate: p.rate.txPackets, TxBitRate: p.rate.txBits,
			}
			switch {
			case p.io == nil:
				ps.State = PortMissing
				if p.err != nil {
					ps.Error = p.err.Error()
				}
			case !p.carrier:
				ps.State = PortNoCarrier
			}
			s.Ports = append(s.Ports, ps)
		}
	})
	return s, err
}

// Counters counts what the switch did since it started.
func (d *Daemon) Counters() (c Counters, err error) {
	err = d.Do(func() {
		c.Switch, c.Lost = d.sw.Counters()
		for i := range d.ports {
			if d.hosts[i] == "" {
				continue
			}
			p := &d.ports[i]
			pc := PortCounters{Host: d.hosts[i], PortCounters: d.sw.Port(i), SentPackets: p.tx.packets, SentBytes: p.tx.bytes}
			if st, ok := p.io.(stater); ok {
				pc.RxRing = st.Stats().RxDropped
			}
			c.Ports = append(c.Ports, pc)
		}
	})
	return c, err
}

// Flows lists the RoCEv2 flows that the switch saw, the busiest first.
func (d *Daemon) Flows() (f []pipeline.Flow, err error) {
	err = d.Do(func() { f = d.sw.Flows() })
	return f, err
}
