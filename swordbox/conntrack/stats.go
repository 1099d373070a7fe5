package conntrack

// Stats says what a table holds, and counts what it did and refused.
type Stats struct {
	// Flows is how many flows are in use. Learning of them have no peer yet, and Closed of them are
	// in quarantine.
	Flows    int `json:"rows"`
	Learning int `json:"learning"`
	Closed   int `json:"closed"`
	// Hosts is the number of addresses that the table remembers.
	Hosts int `json:"hosts"`

	// Announced counts connections that the connection manager named. Paired counts those that were
	// learnt from packets.
	Announced uint64 `json:"announced"`
	Paired    uint64 `json:"paired"`
	// Ended counts connections that were closed. Idled counts those that the table forgot because
	// they were silent.
	Ended uint64 `json:"ended"`
	Idled uint64 `json:"idled"`
	// GivenUp counts pinned connections that the table ended because they were silent and the table
	// was nearly full.
	GivenUp uint64 `json:"givenUp"`
	// Reused counts flows whose queue pair was found to belong to another connection than before.
	Reused uint64 `json:"reused"`
	// Resyncs counts responses that showed that the switch had missed requests.
	Resyncs uint64 `json:"resyncs"`
	// HostMoves counts addresses that appeared at another port after a silence.
	HostMoves uint64 `json:"hostMoves"`

	// Spoofed counts packets that came in at a port to which their source address does not belong.
	Spoofed uint64 `json:"spoofed"`
	// NoRoom counts packets of connections for which the table had no room. Evicted counts learning
	// flows that the table removed to make room.
	NoRoom  uint64 `json:"noRoom"`
	Evicted uint64 `json:"evicted"`
	// Quarantined counts packets of connections that have ended.
	Quarantined uint64 `json:"quarantined"`
	// Implausible counts responses to a PSN that was not requested.
	Implausible uint64 `json:"implausible"`
	// Doubted counts responses that may belong to a newer connection, whose queue pair has the same
	// QPN as that of an older connection.
	Doubted uint64 `json:"doubted"`
	// Damaged counts packets with a wrong ICRC, from which the table therefore did not learn.
	Damaged uint64 `json:"damaged"`
	// Contradicted counts learning flows whose responses match no flow's requests. Contested counts
	// flows that claimed the same peer as another one. In both cases the flows start over.
	Contradicted uint64 `json:"contradicted"`
	Contested    uint64 `json:"contested"`
	// Unhurried counts responses from which the table did not learn, because the budget of
	// comparisons was used up.
	Unhurried uint64 `json:"unhurried"`
	// Datagrams counts valid messages of the connection manager. Strays counts messages that match
	// no connection or are malformed.
	Datagrams uint64 `json:"datagrams"`
	Strays    uint64 `json:"strays"`
}
