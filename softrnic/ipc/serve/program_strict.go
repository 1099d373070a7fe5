package serve

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/qpattr"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// This file refuses what a kernel refuses before a driver sees the command, so that a program that
// runs here does not fail on hardware. Config.Lenient turns that off.

// onlyPort is the number of the NIC's port.
const onlyPort = 1

// strict checks a modify command against the table of attributes and the ranges of their values. A
// draining queue pair is in SQD and has started work requests that are not complete.
func (x *programQueues) strict(o *programQPObject, to uint8, a *uverbs.ModifyQPArgs, draining bool) error {
	named, from := qpattr.Mask(a.Mask), o.state
	switch {
	case named&qpattr.CurrentState != 0 && a.Current != from:
		return badAttr("cur_qp_state is %v, but the state is %v", verbs.QPState(a.Current), verbs.QPState(from))
	case draining && named&qpattr.State != 0 && (to == stateRTS || to == stateSQD):
		return badAttr("the send queue is still draining; wait for IBV_EVENT_SQ_DRAINED")
	}
	if err := qpattr.CheckRoCE(types[o.made.Type], verbs.QPState(from), verbs.QPState(to), named); err != nil {
		return err
	}
	nic := x.p.c.ctx.Device()
	for _, r := range valueRules {
		if named&r.attribute == 0 {
			continue
		}
		if err := r.check(a, &nic); err != nil {
			return err
		}
	}
	return nil
}

func badAttr(format string, args ...any) error {
	return verbs.Errorf("modify QP", verbs.ErrInvalid, format, args...)
}

// valueRule checks the value of an attribute that a command names.
type valueRule struct {
	attribute qpattr.Mask
	check     func(a *uverbs.ModifyQPArgs, nic *verbs.DeviceAttr) error
}

// valueRules are in the order of the checks. An attribute without a line has no bad values, or the
// transport checks them.
var valueRules = []valueRule{
	{qpattr.Port, func(a *uverbs.ModifyQPArgs, _ *verbs.DeviceAttr) error { return checkPort("port_num", a.Port) }},
	{qpattr.Dest, func(a *uverbs.ModifyQPArgs, nic *verbs.DeviceAttr) error { return checkDest(&a.Dest, nic) }},
	{qpattr.PathMTU, func(a *uverbs.ModifyQPArgs, _ *verbs.DeviceAttr) error { return between("path_mtu", a.PathMTU, 1, 5) }},
	{qpattr.MaxRdAtomic, func(a *uverbs.ModifyQPArgs, nic *verbs.DeviceAttr) error {
		return between("max_rd_atomic", a.MaxRdAtomic, 0, nic.MaxRdAtomic)
	}},
	{qpattr.MaxDestRdAtomic, func(a *uverbs.ModifyQPArgs, nic *verbs.DeviceAttr) error {
		return between("max_dest_rd_atomic", a.MaxDestRdAtomic, 0, nic.MaxRdAtomic)
	}},
	{qpattr.MinRNRTimer, func(a *uverbs.ModifyQPArgs, _ *verbs.DeviceAttr) error {
		return between("min_rnr_timer", a.MinRNRTimer, 0, maxTimerCode)
	}},
	{qpattr.Timeout, func(a *uverbs.ModifyQPArgs, _ *verbs.DeviceAttr) error {
		return between("timeout", a.Timeout, 0, maxTimerCode)
	}},
	{qpattr.RetryCount, func(a *uverbs.ModifyQPArgs, _ *verbs.DeviceAttr) error {
		return between("retry_cnt", a.RetryCount, 0, 7)
	}},
	{qpattr.RNRRetry, func(a *uverbs.ModifyQPArgs, _ *verbs.DeviceAttr) error { return between("rnr_retry", a.RNRRetry, 0, 7) }},
}

func between(name string, v uint8, least, most int) error {
	if int(v) < least || int(v) > most {
		return badAttr("%s %d; choose %d to %d", name, v, least, most)
	}
	return nil
}

func checkPort(name string, port uint8) error {
	if port != onlyPort {
		return badAttr("%s %d; the NIC has port %d alone", name, port, onlyPort)
	}
	return nil
}

// checkDest checks the address of a peer. On RoCE it always has a GRH, because packets are routed by
// their GIDs.
func checkDest(d *uverbs.QPDest, nic *verbs.DeviceAttr) error {
	switch n := len(nic.GIDs); {
	case d.Port != onlyPort:
		return checkPort("ah_attr.port_num", d.Port)
	case d.Global == 0:
		return badAttr("ah_attr.is_global is 0; an address on RoCE needs a GRH: set is_global to 1, grh.dgid and grh.sgid_index")
	case int(d.SourceGID) == n || int(d.SourceGID) < n && nic.GIDs[d.SourceGID].IsZero():
		return fmt.Errorf("modify QP: grh.sgid_index %d is an empty entry: %w", d.SourceGID, unix.ENODATA)
	case int(d.SourceGID) > n:
		return badAttr("grh.sgid_index %d; the port has GIDs 0 to %d", d.SourceGID, n-1)
	}
	return nil
}

// maxRefusalsLogged is how many refused modify commands of a program the log has, so that a program
// cannot fill it.
const maxRefusalsLogged = 32

// logRefusal writes the reason of a refused modify command to the log, because the program learns
// only an errno.
func (x *programQueues) logRefusal(o *programQPObject, to uint8, err error) {
	if x.p.refusals++; x.p.refusals > maxRefusalsLogged {
		return
	}
	x.p.c.s.log.Warn("verbs: modify QP refused", "pid", x.p.c.cred.Pid, "qpn", uint32(o.qp.QPN()), "from", verbs.QPState(o.state).String(),
		"to", verbs.QPState(to).String(), "errno", errnoOf(err).Error(), "reason", err)
	if x.p.refusals == maxRefusalsLogged {
		x.p.c.s.log.Warn("verbs: further refusals of this program are not logged", "pid", x.p.c.cred.Pid)
	}
}
