// Package chipcost estimates the resources of a programmable switching chip that a switch program
// would need: it places the tables and registers that the program declares in the stages of a
// pipeline, for each of the program's modes, and counts the blocks that do not fit. It is a rough
// rule with figures of public papers about such chips, and no compiler: it distinguishes kilobytes
// from gigabytes and one stage from thirty.
//
// The rule. Tables and registers are placed in the order of their declaration, each from the stage
// on in which the one before it ended, as if each needed the result of the one before. An entry of
// an exact-match table takes whole words of a memory block side by side. A register wider than a
// stateful unit takes several units. What does not fit into a stage goes on in the next one, also
// behind the last one that the chip has: those blocks are counted (Report.Beyond).
//
// What no stage does, however large, is counted too: tables into which packets insert
// (Report.Learned), and the needs that the program declares: packets that are kept, timers, packets
// that are made, and the ICRC.
package chipcost

// Chip describes the resources of one pipeline of a chip.
type Chip struct {
	Name string `json:"name"`
	// Stages of match and action that a packet passes once.
	Stages int `json:"stages"`
	// Blocks of memory in each stage; a block has BlockWords words of WordBits bits.
	Blocks     int `json:"blocksPerStage"`
	BlockWords int `json:"blockWords"`
	WordBits   int `json:"wordBits"`
	// Units are the stateful units of a stage: each can change one register of at most UnitBits
	// bits for a packet, in an array of at most UnitBlocks blocks.
	Units      int `json:"unitsPerStage"`
	UnitBits   int `json:"unitBits"`
	UnitBlocks int `json:"unitBlocks"`
	// Tables is the number of logical tables of a stage. A table or an array of registers takes one
	// in each of its stages.
	Tables int `json:"tablesPerStage"`
}

// Tofino is a chip like the one of the paper's prototype, by published figures: 12 stages with 80
// SRAM blocks of 16 KiB, 4 stateful units and 16 logical tables each.
func Tofino() Chip {
	return Chip{Name: "Tofino-like", Stages: 12, Blocks: 80, BlockWords: 1024, WordBits: 128, Units: 4, UnitBits: 64, UnitBlocks: 35, Tables: 16}
}

// widest is the widest register that the model allows, in bits: all stateful units of two stages.
func (c *Chip) widest() int { return 2 * c.Units * c.UnitBits }

// up is a/b, rounded up.
func up(a, b int) int { return (a + b - 1) / b }

// power is the smallest width of registers, in bits, that holds n.
func power(n int) int {
	w := 8
	for w < n {
		w *= 2
	}
	return w
}
