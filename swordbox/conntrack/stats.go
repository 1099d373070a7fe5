package conntrack

// Stats counts what a table holds, did and refused.
type Stats struct {
	// Flows are in use; Learning of them have no peer yet, Closed are in quarantine.
	Flows    int `json:"rows"`
	Learning int `json:"learning"`
	Closed   int `json:"closed"`
	// Hosts is the number of addresses that the table remembers.
	Hosts int `json:"hosts"`

	// Announced are connections that the connection manager named. Paired are those that were
	// learnt from packets.
	Announced uint64 `json:"announced"`
	Paired    uint64 `json:"paired"`
	// Ended are connections that were closed. Idled are those that were forgotten because they were
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
	// NoRoom are packets of connections for which the table had no room, Evicted learning flows
	// that it removed to make room.
	NoRoom  uint64 `json:"noRoom"`
	Evicted uint64 `json:"evicted"`
	// Quarantined packets belong to a connection that has ended.
	Quarantined uint64 `json:"quarantined"`
	// Implausible responses have a PSN that was not requested.
	Implausible uint64 `json:"implausible"`
	// Doubted responses may belong to a newer connection whose queue pair has the same QPN as that
	// of an older connection.
	Doubted uint64 `json:"doubted"`
	// Damaged packets have a wrong ICRC, so the table did not learn from them.
	Damaged uint64 `json:"damaged"`
	// Contradicted are learning flows whose responses match no flow's requests. Contested are those
	// that claimed the same peer as another flow: both start over.
	Contradicted uint64 `json:"contradicted"`
	Contested    uint64 `json:"contested"`
	// Unhurried are responses from which the table did not learn, because the budget of comparisons
	// was spent.
	Unhurried uint64 `json:"unhurried"`
	// Datagrams are valid messages of the connection manager. Strays are those that match no
	// connection or are malformed.
	Datagrams uint64 `json:"datagrams"`
	Strays    uint64 `json:"strays"`
}
