package pipeline

// maxReasons bounds the drop reasons that a port counts separately.
const maxReasons = 32

// PortCounters counts what has passed one port. A super-frame counts as its packets.
type PortCounters struct {
	RxPackets uint64 `json:"rxPackets" name:"rx_packets" help:"packets received"`
	RxBytes   uint64 `json:"rxBytes" name:"rx_bytes" help:"bytes of frames received"`
	RxRoCE    uint64 `json:"rxRoce" name:"rx_roce_packets" help:"well-formed RoCEv2 packets received"`
	Malformed uint64 `json:"malformed" name:"rx_roce_malformed" help:"packets to UDP port 4791 that are not valid RoCEv2"`
	TxPackets uint64 `json:"txPackets" name:"tx_packets" help:"packets forwarded to this port"`
	TxBytes   uint64 `json:"txBytes" name:"tx_bytes" help:"bytes of frames forwarded to this port"`
	// Drops counts dropped packets by reason: packets received at this port, and packets that were
	// to be sent from it.
	Drops map[Reason]uint64 `json:"drops,omitempty"`
}

func (p *PortCounters) drop(r Reason, packets int) {
	if packets == 0 {
		return
	}
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

// Counters counts events of the whole switch.
type Counters struct {
	Rewritten    uint64 `json:"rewritten" name:"rewritten" help:"packets that the program changed"`
	Emitted      uint64 `json:"emitted" name:"emitted" help:"packets that the program made"`
	Held         uint64 `json:"held" name:"held" help:"packets that the program held"`
	Consumed     uint64 `json:"consumed" name:"consumed" help:"packets that the program consumed"`
	Answered     uint64 `json:"answered" name:"answered" help:"ARP requests and neighbour solicitations for the switch's own addresses, answered"`
	Flooded      uint64 `json:"flooded" name:"flooded" help:"frames sent to every port"`
	Multicast    uint64 `json:"multicast" name:"multicast" help:"frames sent to the ports of a multicast group"`
	GroupReports uint64 `json:"groupReports" name:"group_reports" help:"reports of IGMP and MLD read"`
	GroupQueries uint64 `json:"groupQueries" name:"group_queries" help:"queries of IGMP and MLD sent"`
	Groups       int    `json:"groups" help:"multicast groups in the table"`
	GroupFull    uint64 `json:"groupFull" name:"group_table_full" help:"reports of groups not learnt because the table was full"`
	MACs         int    `json:"macs" help:"addresses in the table"`
	MACMoves     uint64 `json:"macMoves" name:"mac_moves" help:"addresses that moved to another port"`
	MACFull      uint64 `json:"macFull" name:"mac_table_full" help:"addresses not learnt because the table was full"`
	MACForeign   uint64 `json:"macForeign" name:"mac_foreign" help:"frames with the address of another port's host, which was not learnt"`
	Flows        int    `json:"flows" help:"flows in the table"`
	FlowOverflow uint64 `json:"flowOverflow" name:"flow_overflow" help:"packets of flows not counted because the table was full"`
}
