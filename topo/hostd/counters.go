package hostd

import (
	"slices"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
)

// PortCounters are the counters of the port, with names.
type PortCounters struct {
	RxPackets uint64 `name:"port_rx_packets" help:"frames to UDP port 4791 (with 1RMA also 4792) that the port received"`
	RxBytes   uint64 `name:"port_rx_bytes" help:"bytes of the frames that the port received"`
	TxPackets uint64 `name:"port_tx_packets" help:"frames that the port sent"`
	TxBytes   uint64 `name:"port_tx_bytes" help:"bytes of the frames that the port sent"`
	RxDropped uint64 `name:"port_rx_dropped" help:"frames that found the receive ring full"`
	TxDropped uint64 `name:"port_tx_dropped" help:"frames that the link refused"`
}

// CounterHelp returns the name and the help text of each counter that Counters may have. Daemons do not
// send these texts.
func CounterHelp() []metrics.Sample {
	return slices.Concat(metrics.Samples(&metrics.NIC{}), metrics.Samples(&PortCounters{}), metrics.Samples(&serve.RefusalCounters{}), new(nic.Stats).Samples())
}

func (h *Host) Counters() Counters {
	nic, port, programs := h.dev.Counters(), PortCounters(h.port.Stats()), h.ipc.RefusalCounters()
	c := Counters{Name: h.self.Name, Samples: slices.Concat(metrics.Samples(&nic), metrics.Samples(&port), metrics.Samples(&programs))}
	c.Samples = append(c.Samples, h.dev.QueueSamples()...)
	if h.solo != nil {
		s := h.solo.Stats()
		c.Samples = append(c.Samples, s.Samples()...)
	}
	return c
}
