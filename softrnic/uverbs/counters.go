package uverbs

import (
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
)

// CounterPeriod is how old the files of CounterFiles may be at most, but for the time that it takes to
// write them. The file hw_counters/lifespan says it.
const CounterPeriod = time.Second

// CounterFiles returns the files with the counters of a NIC's port, as a map from path to content: in
// counters those of the performance management of InfiniBand, and in hw_counters those of `rdma
// statistic`, by the names of package metrics. Data is counted in units of 4 bytes.
func CounterFiles(c *metrics.NIC, at Place) map[string]string {
	port := at.device() + "ports/1/"
	t := map[string]string{port + "hw_counters/lifespan": strconv.FormatInt(CounterPeriod.Milliseconds(), 10)}
	for _, s := range metrics.Samples(c) {
		t[port+"hw_counters/"+s.Name] = strconv.FormatUint(s.Value, 10)
	}
	for name, v := range map[string]uint64{
		"port_xmit_data": c.SentBytes / 4, "port_rcv_data": c.RcvdBytes / 4, "port_xmit_packets": c.SentPkts, "port_rcv_packets": c.RcvdPkts,
		"port_rcv_errors": c.RxIcrcErr + c.RxMalformed, "port_xmit_discards": c.TooLong + c.TxHeldDropped, "port_rcv_constraint_errors": c.RxPkeyErr,
		"link_downed": c.LinkDowned,
		// What follows does not happen here.
		"symbol_error": 0, "link_error_recovery": 0, "local_link_integrity_errors": 0, "excessive_buffer_overrun_errors": 0, "port_xmit_wait": 0,
		"port_rcv_remote_physical_errors": 0, "port_rcv_switch_relay_errors": 0, "port_xmit_constraint_errors": 0, "VL15_dropped": 0,
	} {
		t[port+"counters/"+name] = strconv.FormatUint(v, 10)
	}
	return t
}
