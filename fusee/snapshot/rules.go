package snapshot

import "slices"

// verdict is the result of the rules for one writer.
type verdict uint8

const (
	wins1 verdict = iota // the writer wins by Rule 1 (see the package comment)
	wins2                // the writer wins by Rule 2
	wins3                // the writer wins by Rule 3
	loses
	open // Rules 1 and 2 do not decide: Rule 3 must
	gone // the primary has changed, because another writer has won
)

// rules decide which writer has won: first by the backups, and if necessary by the primary.
type rules struct {
	// backups decides by the values that the backups have after the swaps. list has the values that
	// the writer's swaps have found, with the writer's own value in place of the old one.
	backups func(list []uint64, mine uint64) verdict
	// primary decides by the value that the writer has read from the primary. It is called only if
	// backups has returned open.
	primary func(list []uint64, mine, old, primary uint64) verdict
}

// theRules are the rules of the paper.
var theRules = rules{byBackups, byPrimary}

// byBackups applies Rules 1 and 2 for the writer whose new value is mine. list is not empty: it has
// the values of the backups (see rules).
func byBackups(list []uint64, mine uint64) verdict {
	value, most := majority(list)
	switch {
	case most && value != mine:
		return loses
	case count(list, mine) == len(list):
		return wins1
	case most:
		return wins2
	case count(list, mine) == 0:
		return loses
	}
	return open
}

// byPrimary applies Rule 3: the smallest of the values in list, compared as numbers, wins if the
// primary still has the value old.
func byPrimary(list []uint64, mine, old, primary uint64) verdict {
	if primary != old {
		return gone
	}
	if slices.Min(list) < mine {
		return loses
	}
	return wins3
}

// majority returns the value that more than half of the list has. ok is false if there is no such
// value.
func majority(list []uint64) (value uint64, ok bool) {
	for _, v := range list {
		if 2*count(list, v) > len(list) {
			return v, true
		}
	}
	return 0, false
}

func count(list []uint64, value uint64) (n int) {
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}
