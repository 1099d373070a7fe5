package pipeline

import "maps"

// maxReasons bounds the different drop reasons that a port counts apart.
const maxReasons = 32

// PortCounters count what passed one port. A super-frame counts each of its packets.
type PortCounters struct {
	RxPackets uint64 `json:"rxPackets" name:"rx_packets" help:"packets that came in"`
	RxBytes   uint64 `json:"rxBytes" name:"rx_bytes" help:"bytes of frames that came in"`
	RxRoCE    uint64 `json:"rxRoce" name:"rx_roce_packets" help:"well-formed RoCEv2 packets that came in"`
	Malformed uint64 `json:"malformed" name:"rx_roce_malformed" help:"packets to UDP 4791 that are no RoCEv2"`
	TxPackets uint64 `json:"txPackets" name:"tx_packets" help:"packets directed to this port"`
	TxBytes   uint64 `json:"txBytes" name:"tx_bytes" help:"bytes of frames directed to this port"`
	// Drops are packets by reason: those that came in here and went nowhere, and those meant to leave here.
	Drops map[Reason]uint64 `json:"drops,omitempty"`
}

// drop counts packets lost for a reason.
func (p *PortCounters) drop(r Reason, packets int) {
	if _, ok := p.Drops[r]; !ok {
		if p.Drops == nil {
			p.Drops = make(map[Reason]uint64)
		}
		if len(p.Drops) >= maxReasons {
			r = ReasonOther
		}
	}
	p.Drops[r] += uint64(packets)
}

// clone is a copy that shares nothing.
func (p *PortCounters) clone() PortCounters {
	c := *p
	c.Drops = maps.Clone(p.Drops)
	return c
}

// Counters are those of the whole switch.
type Counters struct {
	Rewritten    uint64 `json:"rewritten" name:"rewritten" help:"packets that the program rewrote"`
	Emitted      uint64 `json:"emitted" name:"emitted" help:"packets that the program made"`
	Held         uint64 `json:"held" name:"held" help:"packets that the program held back"`
	Consumed     uint64 `json:"consumed" name:"consumed" help:"packets that the program took"`
	Answered     uint64 `json:"answered" name:"answered" help:"ARP requests and neighbour solicitations for the switch that it answered"`
	Flooded      uint64 `json:"flooded" name:"flooded" help:"frames sent to every port"`
	MACs         int    `json:"macs"`
	MACMoves     uint64 `json:"macMoves" name:"mac_moves" help:"addresses seen on another port than before"`
	MACFull      uint64 `json:"macFull" name:"mac_table_full" help:"addresses not learnt because the table was full"`
	Flows        int    `json:"flows"`
	FlowOverflow uint64 `json:"flowOverflow" name:"flow_overflow" help:"packets of flows not counted apart because the table was full"`
}
