package handler

// Entries is the body of POST /entries: changes of the table of a rule.
type Entries struct {
	Rule string `json:"rule"`
	// Entries are in the text form of the handler.
	Entries []string `json:"entries,omitempty"`
	// Remove is true if the entries with the keys in Entries are to be removed.
	Remove bool `json:"remove,omitempty"`
}

// EntriesReport answers Entries.
type EntriesReport struct {
	// Taken is how many entries the switch has accepted, counted from the first one. It has no room
	// now for the entries after these.
	Taken int `json:"taken"`
	// Waiting is how many changes have not ended. Written, Removed and Refused count the changes
	// that have ended since the rule exists. Why says why the last one was refused.
	Waiting int    `json:"waiting"`
	Written uint64 `json:"written"`
	Removed uint64 `json:"removed"`
	Refused uint64 `json:"refused"`
	Why     string `json:"why,omitempty"`
	// Down names a server to which the switch has no connection, and says why; "" means that there
	// is no such server.
	Down string `json:"down,omitempty"`
}

// EntriesPage is a part of the table of a rule.
type EntriesPage struct {
	// Ready is true if the other fields are set. If it is false, the switch is still reading the
	// table, and the client asks again.
	Ready   bool     `json:"ready"`
	Entries []string `json:"entries,omitempty"`
	// Server and From are the arguments for the next part. End is true if there is no further part.
	Server int  `json:"server"`
	From   int  `json:"from"`
	End    bool `json:"end"`
}

// EntriesRange is the body of POST /entries/page.
type EntriesRange struct {
	Rule   string `json:"rule"`
	Server int    `json:"server"`
	From   int    `json:"from"`
}
