package chipcost

// Figure8 is a line of Figure 8 of the SwordBox paper. It gives the resources of a part of the
// authors' P4 program, in percent of a Tofino, as their compiler reports them. A line is not the
// sum of the lines above it: SRAM falls from the first line to the second.
type Figure8 struct {
	Part string `json:"part"`
	// Crossbar is the exact-match crossbar. MapRAM is the memory beside the stateful units. A Use
	// has no field for these two, HashBits and Gateways.
	Crossbar float64 `json:"crossbar"`
	HashBits float64 `json:"hashBits"`
	Gateways float64 `json:"gateways"`
	// SRAM, Units (meter ALUs) and Tables (logical tables) are comparable with the fields of a Use.
	SRAM   float64 `json:"sram"`
	MapRAM float64 `json:"mapRam"`
	Units  float64 `json:"units"`
	Tables float64 `json:"tables"`
}

// AuthorsFigure8 returns the figure, from the data in the authors' repository. Their program
// steers: it moves no request to a shared connection and replaces no atomic, and the NICs do not
// check the ICRC.
func AuthorsFigure8() []Figure8 {
	return []Figure8{
		{"parsing and forwarding", 4.69, 9.62, 0, 5.00, 0, 0, 12.50},
		{"+ connection tracking", 6.84, 5.89, 12.50, 3.44, 3.65, 18.75, 15.62},
		{"+ write steering", 7.25, 4.74, 16.96, 9.64, 14.88, 28.57, 19.64},
		{"+ read steering", 9.98, 9.94, 23.61, 18.61, 30.09, 44.44, 29.17},
		{"simple switch.p4", 17.41, 16.41, 8.93, 18.39, 2.68, 7.14, 24.11},
	}
}
