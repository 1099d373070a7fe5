// Package metrics has the counters of a NIC as typed fields, with the names that operators know
// from `rdma statistic`. Samples lists the counters of any struct with such fields, and Self
// describes the resources of this process. The package reads no clock and takes no lock: the owner
// of a counter increments it, and gives copies to others.
package metrics

// NIC has the counters of one NIC. A counter has the name of a counter of rdma_rxe or mlx5 in its
// tag, if one of them has the same meaning. Units are packets or events unless the name says
// otherwise.
type NIC struct {
	SentPkts  uint64 `name:"sent_pkts" help:"RoCEv2 packets sent"`
	RcvdPkts  uint64 `name:"rcvd_pkts" help:"RoCEv2 packets received and accepted"`
	SentBytes uint64 `name:"sent_bytes" help:"bytes of RoCEv2 frames sent"`
	RcvdBytes uint64 `name:"rcvd_bytes" help:"bytes of RoCEv2 frames received"`

	// Counters of the requester.
	RdmaSends           uint64 `name:"rdma_sends" help:"send work requests of any kind that have completed, successfully or not"`
	RetransPkts         uint64 `name:"roce_retrans_pkts" help:"request packets sent again"`
	LocalAckTimeoutErr  uint64 `name:"local_ack_timeout_err" help:"expirations of the local ACK timer"`
	PacketSeqErr        uint64 `name:"packet_seq_err" help:"NAKs for a PSN sequence error received"`
	ImpliedNakSeqErr    uint64 `name:"implied_nak_seq_err" help:"lost responses inferred from a later response (implied NAKs)"`
	RcvdRnrErr          uint64 `name:"rcvd_rnr_err" help:"RNR NAKs received"`
	RetryExceededErr    uint64 `name:"retry_exceeded_err" help:"requests failed because the retry counter ran out"`
	RetryRnrExceededErr uint64 `name:"retry_rnr_exceeded_err" help:"requests failed because the RNR retry counter ran out"`
	DuplicateAck        uint64 `name:"duplicate_ack" help:"responses ignored: duplicate, late, or to no request in flight"`
	ReadTailRetry       uint64 `name:"read_tail_retry" help:"READ retries that request only the missing part"`
	RemoteAccessErr     uint64 `name:"req_remote_access_errors" help:"NAKs for a remote access error received"`
	RemoteInvalidErr    uint64 `name:"req_remote_invalid_request" help:"NAKs for an invalid request received"`
	RemoteOpErr         uint64 `name:"req_remote_op_errors" help:"NAKs for a remote operational error received"`
	BadResponse         uint64 `name:"bad_response" help:"responses with an unexpected opcode or length"`
	CqeFlushErr         uint64 `name:"req_cqe_flush_error" help:"work requests completed with a flush error"`
	CqeErr              uint64 `name:"req_cqe_error" help:"work requests completed with an error other than a flush"`

	GroupReports uint64 `name:"tx_group_reports" help:"reports of multicast groups sent, by IGMP and MLD"`
	TooLong      uint64 `name:"tx_too_long" help:"packets not sent because they exceed the MTU of the port"`

	// Counters of the responder.
	RcvdMulticast    uint64 `name:"rcvd_multicast" help:"copies of datagrams to multicast groups handed to queue pairs"`
	RdmaRecvs        uint64 `name:"rdma_recvs" help:"receives completed"`
	RxWriteRequests  uint64 `name:"rx_write_requests" help:"WRITE messages executed"`
	RxReadRequests   uint64 `name:"rx_read_requests" help:"READ requests executed, duplicates not counted"`
	RxAtomicRequests uint64 `name:"rx_atomic_requests" help:"atomics executed, duplicates not counted"`
	RxFlushRequests  uint64 `name:"rx_flush_requests" help:"FLUSHes executed, duplicates not counted"`
	DuplicateRequest uint64 `name:"duplicate_request" help:"requests whose PSN was already executed"`
	OutOfSequence    uint64 `name:"out_of_seq_request" help:"requests with a PSN beyond the expected one"`
	SendSeqNak       uint64 `name:"send_seq_nak" help:"NAKs for a PSN sequence error sent"`
	SendRnrErr       uint64 `name:"send_rnr_err" help:"RNR NAKs sent"`
	OutOfBuffer      uint64 `name:"out_of_buffer" help:"requests that found no receive posted"`
	RespAccessErr    uint64 `name:"resp_remote_access_errors" help:"requests refused because of their R_Key, address range or access rights"`
	RespInvalidErr   uint64 `name:"resp_invalid_request" help:"requests refused as invalid (opcode sequence, length, alignment)"`
	RespOpErr        uint64 `name:"resp_op_errors" help:"requests refused for a local operational error"`
	AckCoalesced     uint64 `name:"ack_coalesced" help:"ACKs not sent because a later response acknowledges the same requests"`
	ReplayedAtomics  uint64 `name:"replayed_atomics" help:"duplicate atomics and FLUSHes answered from the stored result"`
	DroppedMsgs      uint64 `name:"dropped_messages" help:"messages of unreliable connections dropped because a packet was lost or refused"`
	ReplayedReads    uint64 `name:"replayed_reads" help:"duplicate READs executed again"`

	// Counters of packets that were dropped before they reached a queue pair.
	RxIcrcErr     uint64 `name:"rx_icrc_encapsulated" help:"packets dropped because the ICRC was wrong"`
	RxMalformed   uint64 `name:"rx_malformed" help:"frames to UDP port 4791 that cannot be parsed"`
	RxUnknownQP   uint64 `name:"rx_unknown_qp" help:"packets to a queue pair that does not exist, or does not receive in its state"`
	RxWrongPeer   uint64 `name:"rx_wrong_peer" help:"packets whose source is not the queue pair's peer"`
	RxNotMine     uint64 `name:"rx_not_mine" help:"frames to another address"`
	RxUnsupported uint64 `name:"rx_unsupported" help:"well-formed packets of an opcode or transport this NIC does not serve"`
	RxPkeyErr     uint64 `name:"rx_pkey_mismatch" help:"packets dropped because of their P_Key"`
	RxHeldDropped uint64 `name:"rx_held_dropped" help:"frames received and dropped because too many wait for the NIC of a rack in slow motion"`
	TxHeldDropped uint64 `name:"tx_held_dropped" help:"frames made and dropped because too many wait for the link of a rack in slow motion"`
	QKeyErr       uint64 `name:"qkey_violations" help:"datagrams dropped because of their Q_Key"`
	RxCnp         uint64 `name:"rp_cnp_handled" help:"congestion notification packets that have slowed a queue pair"`
	RxCnpIgnored  uint64 `name:"rp_cnp_ignored" help:"congestion notification packets ignored: congestion control is off, or they name no queue pair of their sender"`
	RxMarked      uint64 `name:"np_ecn_marked_roce_packets" help:"packets received that a switch has marked (ECN: congestion experienced)"`
	TxCnp         uint64 `name:"np_cnp_sent" help:"congestion notification packets sent, because packets were marked"`
	TornCopies    uint64 `name:"torn_copies" help:"memory copies that the fault plan has torn at a boundary of 64 bytes"`
	CqOverrun     uint64 `name:"cq_overrun" help:"completions lost because a CQ was full"`
	AsyncEvents   uint64 `name:"async_events" help:"asynchronous events raised"`
	LinkDowned    uint64 `name:"link_downed" help:"times the port lost its carrier"`

	// Counters of send rings.
	RingEntries  uint64 `name:"ring_entries" help:"entries of send rings executed"`
	RingRefused  uint64 `name:"ring_refused" help:"entries of send rings that could not be executed"`
	RingThrottle uint64 `name:"ring_throttle" help:"times a send ring reached its limit of entries in one step and had more to execute"`
}
