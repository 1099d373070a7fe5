package hostd

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// serveVerbs lets programs on the host use the NIC.
func (h *Host) serveVerbs() (err error) {
	spin := h.self.Spin
	if spin == 0 {
		spin = -1 // not at all
	}
	h.ipc, err = serve.Listen(serve.Config{
		Path: spec.Paths{Dir: h.cfg.Dir}.Verbs(h.self.Name), Open: h.dev.Context, Manager: h.connectionsOf,
		Spin: spin, Seed: h.rack.Seed + uint64(h.index)<<32, Log: h.log,
	})
	return err
}

// connectionsOf makes connections for a program, the way that the rack's description says.
func (h *Host) connectionsOf(ctx verbs.Context) (serve.Manager, error) {
	if h.rack.Connect == spec.ConnectTCP {
		d, err := rdmacm.NewOOB(rdmacm.OOBConfig{Context: ctx})
		if err != nil {
			return nil, err
		}
		return common{h.conn, d}, nil
	}
	m, err := rdmacm.NewCM(rdmacm.CMConfig{Context: ctx})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// common is the manager of all on a host, as one program sees it: the server closes its listeners
// one by one. It dials by itself, so that what it dials ends with it.
type common struct {
	rdmacm.Manager
	dialer *rdmacm.OOB
}

// Dial dials.
func (c common) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	return c.dialer.Dial(qp, to, service, p, private, deadline)
}

// Close ends the program's dials, and leaves the manager open for others.
func (c common) Close() error { return c.dialer.Close() }
