package conntrack

// Stats counts what a table holds, did and refused.
type Stats struct {
	// Rows are in use; Learning of them wait for their other half, Closed are in quarantine.
	Rows     int `json:"rows"`
	Learning int `json:"learning"`
	Closed   int `json:"closed"`
	Hosts    int `json:"hosts"`

	// Announced are connections that the connection manager named, Paired those that were learnt from packets.
	Announced uint64 `json:"announced"`
	Paired    uint64 `json:"paired"`
	// Ended are connections that were closed, Idled those that were forgotten because they were silent.
	Ended uint64 `json:"ended"`
	Idled uint64 `json:"idled"`
	// GivenUp are pinned connections that were ended because they were silent and the table was nearly full.
	GivenUp uint64 `json:"givenUp"`
	// Reused are rows whose queue pair was found to belong to another connection than before.
	Reused uint64 `json:"reused"`
	// Resyncs are responses that showed that the switch had missed requests.
	Resyncs uint64 `json:"resyncs"`
	// HostMoves are addresses that were seen behind another port after a silence.
	HostMoves uint64 `json:"hostMoves"`

	// Spoofed packets came in at another port than their source belongs to.
	Spoofed uint64 `json:"spoofed"`
	// NoRoom are packets of connections that found no room, Evicted learning rows that had to make room.
	NoRoom  uint64 `json:"noRoom"`
	Evicted uint64 `json:"evicted"`
	// Quarantined packets belong to a connection that has ended.
	Quarantined uint64 `json:"quarantined"`
	// Implausible responses answer what was not asked.
	Implausible uint64 `json:"implausible"`
	// Doubted responses may be those of a younger connection whose queue pair has the number of an older one's.
	Doubted uint64 `json:"doubted"`
	// Damaged packets would have been learnt from, had their ICRC been right.
	Damaged uint64 `json:"damaged"`
	// Contradicted are learning rows whose responses fit no requests, Contested those that claimed requests which another
	// one claimed as well: both start over.
	Contradicted uint64 `json:"contradicted"`
	Contested    uint64 `json:"contested"`
	// Unhurried are responses that were not learnt from because too many had been looked at.
	Unhurried uint64 `json:"unhurried"`
	// Datagrams are messages of the connection manager that were understood, Strays those that made no sense.
	Datagrams uint64 `json:"datagrams"`
	Strays    uint64 `json:"strays"`
}
