package rackfile

import (
	"fmt"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/units"
)

// Defaults and bounds of the 1RMA NICs. The defaults have the ratios of the paper: dispatch is 2
// RTT, timeout 5 RTT. The RTT of 4 ms is what a rack needs when its processes share few processors.
// With a smaller RTT, congestion control would mistake the time slice of another process for
// queueing in the network.
const (
	defaultOneRMARTT      = 4 * time.Millisecond
	defaultOneRMADispatch = 8 * time.Millisecond
	defaultOneRMATimeout  = 20 * time.Millisecond
	defaultOneRMAWindow   = 512 << 10
	minOneRMAWindow       = 4096
	maxOneRMAWindow       = 64 << 20
	maxOneRMATime         = time.Second
	minOneRMARotation     = 100 * time.Millisecond
	maxOneRMARotation     = 24 * time.Hour
)

// OneRMA describes the NICs without connections (1RMA), of which each host has one.
type OneRMA struct {
	// RTT is the round-trip time on which congestion control is based.
	RTT time.Duration `json:"rtt"`
	// Dispatch is how long an operation may wait for the solicitation window of its receiver.
	// Timeout is how long the next message of an operation may take.
	Dispatch time.Duration `json:"dispatch"`
	Timeout  time.Duration `json:"timeout"`
	// Window is how many bytes a NIC may have requested that have not arrived yet.
	Window int64 `json:"window"`
	// Rotate is how often hosts replace the keys of the memory that they lend; 0 means never.
	Rotate time.Duration `json:"rotate,omitzero"`
}

func (d *decoder) oneRMA(n ast.Node) *OneRMA {
	o := &OneRMA{RTT: defaultOneRMARTT, Dispatch: defaultOneRMADispatch, Timeout: defaultOneRMATimeout, Window: defaultOneRMAWindow}
	ok := d.sound(func() {
		d.mapping(n, "onerma", []entry{
			set(d, "rtt", &o.RTT, parseOneRMATime),
			set(d, "dispatch", &o.Dispatch, parseOneRMATime),
			set(d, "timeout", &o.Timeout, parseOneRMATime),
			set(d, "window", &o.Window, parseOneRMAWindow),
			set(d, "rotate", &o.Rotate, parseOneRMARotation),
		})
	})
	if ok && o.Timeout < o.Dispatch+2*o.RTT {
		d.errorf(n, "timeout %v is too short: a WRITE waits at its target for dispatch (%v) and needs two rtt (%v); use at least %v", o.Timeout, o.Dispatch, o.RTT, o.Dispatch+2*o.RTT)
	}
	return o
}

func parseOneRMATime(s string) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	if err != nil || v < time.Microsecond || v > maxOneRMATime {
		return 0, fmt.Errorf("%.40q: use a time from 1us to %v", s, maxOneRMATime)
	}
	return v, nil
}

func parseOneRMARotation(s string) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	if err != nil || v < minOneRMARotation || v > maxOneRMARotation {
		return 0, fmt.Errorf("%.40q: use a time from %v to %v", s, minOneRMARotation, maxOneRMARotation)
	}
	return v, nil
}

func parseOneRMAWindow(s string) (int64, error) {
	v, err := units.ParseSize(s)
	if err == nil && (v < minOneRMAWindow || v > maxOneRMAWindow) {
		err = fmt.Errorf("use a size from %s, which one operation needs, to %s", units.FormatSize(minOneRMAWindow), units.FormatSize(maxOneRMAWindow))
	}
	return v, err
}
