// Package chipcost estimates the resources of a programmable switching chip that a switch program
// would need. For each of the program's modes it places the program's tables and registers in the
// stages of a pipeline, and counts the blocks that do not fit. It is a rough rule with figures from
// public papers about such chips, and not a compiler: it distinguishes kilobytes from gigabytes and
// one stage from thirty.
//
// The rule. Tables and registers are placed in the order of their declaration. Each begins in the
// stage in which the one before it ended, as if each needed the result of the one before. An entry
// of an exact-match table takes whole words of memory blocks, side by side. A register wider than a
// stateful unit takes several units. Blocks that do not fit into a stage go to the next one, even
// behind the chip's last stage; blocks behind the last stage are counted (Report.Beyond).
//
// Chipcost also counts what no stage can do, however large it is: tables into which packets insert
// (Report.Learned), and the needs that the program declares (kept packets, timers, made packets,
// and the ICRC).
package chipcost

import "math/bits"

// Chip describes the resources of one pipeline of a chip.
type Chip struct {
	Name string `json:"name"`
	// Stages is the number of stages of match and action. A packet passes each once.
	Stages int `json:"stages"`
	// Blocks is the number of memory blocks in each stage. A block has BlockWords words of WordBits
	// bits.
	Blocks     int `json:"blocksPerStage"`
	BlockWords int `json:"blockWords"`
	WordBits   int `json:"wordBits"`
	// Units is the number of stateful units of a stage. Each can change one register of at most
	// UnitBits bits for a packet, in an array of at most UnitBlocks blocks.
	Units      int `json:"unitsPerStage"`
	UnitBits   int `json:"unitBits"`
	UnitBlocks int `json:"unitBlocks"`
	// Tables is the number of logical tables of a stage. A table or an array of registers takes one
	// in each stage that it occupies.
	Tables int `json:"tablesPerStage"`
}

// Tofino returns a chip like that of the SwordBox paper's prototype, according to published
// figures: 12 stages, each with 80 SRAM blocks of 16 KiB, 4 stateful units and 16 logical tables.
func Tofino() Chip {
	return Chip{Name: "Tofino-like", Stages: 12, Blocks: 80, BlockWords: 1024, WordBits: 128, Units: 4, UnitBits: 64, UnitBlocks: 35, Tables: 16}
}

// widest returns the width of the widest register that the model allows, in bits: all stateful
// units of two stages.
func (c *Chip) widest() int { return 2 * c.Units * c.UnitBits }

// up returns a/b, rounded up.
func up(a, b int) int { return (a + b - 1) / b }

// power returns the smallest register width that holds n bits, in bits: a power of two, at least 8.
func power(n int) int { return max(8, 1<<bits.Len(uint(n-1))) }
