package conntrack

// Stats counts what a table holds, did and refused.
type Stats struct {
	// Flows are in use; Learning of them have no peer yet, Closed are in quarantine.
	Flows    int `json:"rows"`
	Learning int `json:"learning"`
	Closed   int `json:"closed"`
	// Hosts are addresses.
	Hosts int `json:"hosts"`

	// Announced are connections that the connection manager named, Paired those that were learnt
	// from packets.
	Announced uint64 `json:"announced"`
	Paired    uint64 `json:"paired"`
	// Ended are connections that were closed, Idled those that were forgotten because they were
	// silent.
	Ended uint64 `json:"ended"`
	Idled uint64 `json:"idled"`
	// GivenUp are pinned connections that were ended because they were silent and the table was
	// nearly full.
	GivenUp uint64 `json:"givenUp"`
	// Reused are flows whose queue pair was found to belong to another connection than before.
	Reused uint64 `json:"reused"`
	// Resyncs are responses that showed that the switch had missed requests.
	Resyncs uint64 `json:"resyncs"`
	// HostMoves are addresses that appeared behind another port after a silence.
	HostMoves uint64 `json:"hostMoves"`

	// Spoofed packets came in at another port than their source address belongs to.
	Spoofed uint64 `json:"spoofed"`
	// NoRoom are packets of connections that found no room, Evicted learning flows that were given
	// up for others.
	NoRoom  uint64 `json:"noRoom"`
	Evicted uint64 `json:"evicted"`
	// Quarantined packets belong to a connection that has ended.
	Quarantined uint64 `json:"quarantined"`
	// Implausible responses have a PSN that was not requested.
	Implausible uint64 `json:"implausible"`
	// Doubted responses may belong to a newer connection whose queue pair has the QPN of an older
	// one's.
	Doubted uint64 `json:"doubted"`
	// Damaged packets were not learnt from because their ICRC is wrong.
	Damaged uint64 `json:"damaged"`
	// Contradicted are learning flows whose responses match no flow's requests, Contested those
	// that claimed the same peer as another flow: both start over.
	Contradicted uint64 `json:"contradicted"`
	Contested    uint64 `json:"contested"`
	// Unhurried are responses that were not learnt from because the budget of comparisons was
	// spent.
	Unhurried uint64 `json:"unhurried"`
	// Datagrams are valid messages of the connection manager, Strays those that match no connection
	// or are malformed.
	Datagrams uint64 `json:"datagrams"`
	Strays    uint64 `json:"strays"`
}
