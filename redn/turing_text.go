package redn

import (
	"fmt"
	"strings"
)

// ParseStates parses the rules of a Turing machine in the usual notation, as in
// "1RB1LB_1LA0LC_1RH1LD_1RD0RA". The states are separated by "_". Each has a rule for each symbol:
// the symbol that is written, the direction (R or L), and the next state. A is the first state; any
// letter that is no state halts the machine.
func ParseStates(text string) ([]State, error) {
	rows := strings.Split(text, "_")
	if len(rows) > 25 {
		return nil, fmt.Errorf("%d states; want at most 25, so that a letter is left that halts the machine", len(rows))
	}
	machine := make([]State, len(rows))
	for i, row := range rows {
		if len(row) != 3*Symbols {
			return nil, fmt.Errorf("state %c is %q; want %d rules of three characters, like 1RB", 'A'+i, row, Symbols)
		}
		for symbol := range Symbols {
			r := row[3*symbol : 3*symbol+3]
			write, turn, next := int(r[0])-'0', r[1], int(r[2])-'A'
			if write < 0 || write >= Symbols || turn != 'L' && turn != 'R' || next < 0 || next > 25 {
				return nil, fmt.Errorf("state %c has the rule %q; want 0 or 1, L or R, and a letter from A to Z", 'A'+i, r)
			}
			rule := Rule{Write: write, Left: turn == 'L', Next: next}
			if next >= len(rows) {
				rule.Halt, rule.Next = true, 0
			}
			machine[i][symbol] = rule
		}
	}
	return machine, nil
}
