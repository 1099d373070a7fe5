package hostd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/rdmalab/rdmalab/onerma/executor"
	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/measure"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/onerma/socket"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// makeOneRMA makes the 1RMA NIC, which is down. It returns nil if the rack has none.
func (h *Host) makeOneRMA(mac wire.MAC, mtu int) (second device.Second, err error) {
	o := h.rack.Load().OneRMA
	if o == nil {
		return nil, nil //nolint:nilnil // there is no NIC, and that is no error
	}
	h.solo, err = onermahost.New(onermahost.Config{
		NIC: nic.Config{
			MAC: mac, Addr: h.self.IPv4, LinkMTU: mtu, Resolve: h.resolve, RTT: o.RTT, DispatchTimeout: o.Dispatch, Timeout: o.Timeout, Window: int(o.Window),
		},
		Executor:  executor.Config{RTT: o.RTT, First: firstOneRMAWindow, Least: leastOneRMAWindow, Most: maxOneRMAWindow, Burst: true},
		EpochFile: rackfile.Paths{Dir: h.cfg.Dir}.Incarnation(h.self.Name),
	})
	if err != nil {
		return nil, err
	}
	return h.solo, nil
}

// The first value and the bounds of the congestion windows, in operations. With the default first
// window of 1, a test of a second would be over before the window has grown, because it grows by
// one operation in four round trips. With the least window, an operation begins every 10 round
// trips, so the NIC notices soon when a peer has come back.
const (
	firstOneRMAWindow = 64
	leastOneRMAWindow = 0.1
	maxOneRMAWindow   = 512
)

// upOneRMA attaches the 1RMA NIC to the device, which runs already, and starts it.
func (h *Host) upOneRMA() error {
	if h.solo == nil {
		return nil
	}
	h.solo.Attach(h.dev.SecondDriver())
	return h.solo.Up()
}

func (h *Host) serveOneRMA() error {
	if h.solo == nil {
		return nil
	}
	paths := rackfile.Paths{Dir: h.cfg.Dir}
	group, err := groupOf(h.rack.Load(), paths, h.self.Name)
	if err != nil {
		return err
	}
	h.programs, err = socket.Listen(socket.Config{Path: paths.OneRMA(h.self.Name), Group: group, NIC: h.solo, Log: h.log})
	return err
}

// lend opens the service by which peers borrow memory over the 1RMA NIC. The caller holds mu.
func (a *application) lend() error {
	if a.h.solo == nil {
		return nil
	}
	at := netip.AddrPortFrom(a.h.self.IPv4, onermahost.LenderPort)
	var l net.Listener
	err := a.h.cfg.inside(func() (err error) {
		var lc net.ListenConfig
		l, err = lc.Listen(context.Background(), "tcp4", at.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("1RMA: %w", err)
	}
	p, err := a.h.solo.Open(onermahost.ProcessConfig{Slots: 1, Gate: a.hang.Wait})
	if err != nil {
		_ = l.Close() // it has no connections
		return err
	}
	a.lender = p.Lend(l, a.h.log)
	a.lender.RotateEvery(a.h.rack.Load().OneRMA.Rotate)
	return nil
}

// oneRMA returns the 1RMA NIC, or an error that says how to get one.
func (h *Host) oneRMA() (*onermahost.NIC, error) {
	if h.solo == nil {
		return nil, control.Errorf(http.StatusBadRequest, "the hosts of this rack have no 1RMA NICs: put `onerma: {}` into the rack file, then `rdmalab down` and `rdmalab up`")
	}
	return h.solo, nil
}

func (h *Host) measureOneRMA(ctx context.Context, to netip.Addr, cfg perf.Config, tell func(perf.Progress)) (perf.Result, error) {
	n, err := h.oneRMA()
	if err != nil {
		return perf.Result{}, err
	}
	res, err := measure.Run(ctx, n, h.app.hang.Wait, to, cfg, tell)
	res.From = h.self.Name
	return res, err
}
