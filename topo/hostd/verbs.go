package hostd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// serveVerbs opens the socket through which programs on the host use the NIC.
func (h *Host) serveVerbs() (err error) {
	spin := cmp.Or(h.self.Spin, -1) // no spinning by default
	paths := rackfile.Paths{Dir: h.cfg.Dir}
	if err := h.shown.show(); err != nil {
		return err
	}
	if !h.self.IsNIC() {
		if err := link(filepath.Base(paths.VerbsLibrary()), paths.VerbsPreload(h.self.Name)); err != nil {
			return err
		}
	}
	group, err := groupOf(h.rack.Load(), paths, h.self.Machine())
	if err != nil {
		return err
	}
	beside := make([]*serve.Server, len(h.cfg.beside))
	for i, o := range h.cfg.beside {
		beside[i] = o.ipc
	}
	h.ipc, err = serve.Listen(serve.Config{
		Beside: beside, NICWith: h.cfg.nicWith, NICTowards: func(a netip.Addr) int { return nicTowards(h.rack.Load(), h.self, a) },
		Path: paths.VerbsOf(h.self), Group: group, Open: h.dev.Context, Manager: h.connectionsOf,
		Limits: limitsOf(h.self.Quota), Lenient: h.self.Lenient, Spin: spin, Poller: h.cfg.Poller, Seed: h.rack.Load().Seed + uint64(h.index)<<32, Slow: h.rack.Load().Slow, Log: h.log,
	})
	if err != nil || h.self.IsNIC() {
		return err
	}
	h.netlink, err = serveNetlink(paths.Netlink(h.self.Name), group, h.log, netlinkNICs(append([]*Host{h}, h.cfg.beside...)).source)
	return err
}

// link makes name a symbolic link to target. target need not exist.
func link(target, name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("library for RDMA programs: %w", err)
	}
	if err := os.Symlink(target, name); err != nil {
		return fmt.Errorf("library for RDMA programs: %w", err)
	}
	return nil
}

// groupOf returns the number of the group that may use the NIC; 0 means that there is none. It is the
// group of the folder of sockets, because a container cannot look up the machine's group names.
func groupOf(r *rackfile.Rack, paths rackfile.Paths, host string) (int, error) {
	if r.Group == "" {
		return 0, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Dir(paths.Verbs(host)), &st); err != nil {
		return 0, fmt.Errorf("find the group that may use the NIC: %w", err)
	}
	return int(st.Gid), nil
}

// limitsOf converts quotas of the rack file into limits. Programs never get the part of the device
// memory that the host needs for its own lock table.
func limitsOf(q rackfile.Quota) serve.Limits {
	return serve.Limits{
		Clients: q.Programs, PDs: q.PDs, MRs: q.MRs, MWs: q.MWs, AHs: q.AHs, CQs: q.CQs, SRQs: q.SRQs, QPs: q.QPs, Attachments: q.Attachments,
		Manager: serve.ManagerLimits{IDs: q.IDs, Joins: q.Joins, Events: q.Events, Channels: q.Channels},
		Bytes:   q.Memory, QueueBytes: q.QueueMemory, DeviceBytes: q.DeviceMemory, SharedBytes: q.Shared,
		Reserve: q.Reserve, ReservedDevice: LockTable,
	}
}

// connectionsOf returns the connection manager for a program. The rack's description names its
// kind.
func (h *Host) connectionsOf(ctx verbs.Context) (serve.Manager, error) {
	if h.rack.Load().Connect == rackfile.ConnectTCP {
		d, err := rdmacm.NewOOB(rdmacm.OOBConfig{Context: ctx, Inside: h.cfg.inside})
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

// common gives one program access to the host's connection manager. When the program ends, its
// dials end. The server closes the program's listeners one by one.
type common struct {
	rdmacm.Manager
	dialer *rdmacm.OOB
}

func (c common) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	return c.dialer.Dial(qp, to, service, p, private, deadline)
}

// Close ends the program's dials. The host's manager stays open for other programs.
func (c common) Close() error { return c.dialer.Close() }
