package experiment

import (
	"strconv"
)

// The SwordBox authors' workloads: 1,000 keys, Zipf 1.0, and 280 threads where a figure does not
// vary them.
const (
	paperKeys    = 1000
	paperZipf    = 1.0
	paperThreads = 280
)

// steeringKind is a kind of steering for which figures have a series.
type steeringKind struct {
	// name is the name of our series. their is the authors' name of it. data is the key of the
	// series in the authors' data.
	name, their, data string
	box               Switch
}

// unsteered is the name of the series without steering, with which the other series are compared.
const unsteered = "Clover"

// steeringKinds lists the series of the figures about Clover.
func steeringKinds() []steeringKind {
	const write, both = "write steered", "write+read steered"
	return []steeringKind{
		{unsteered, unsteered, "none", Switch{}},
		{write + ", published", write, "write", steering(steerWrite, Published, 0)},
		{write + ", hardened", write, "write", steering(steerWrite, Hardened, 0)},
		{both + ", published", both, "both", steering(steerBoth, Published, 0)},
		{both + ", hardened", both, "both", steering(steerBoth, Hardened, 0)},
	}
}

func writesPanel(writes string) string { return writes + " % writes" }

// cloverLoad is a load with the authors' keys and skew. Without READs, a switch that steers only
// writes and one that steers both do the same; both get the same load, which is measured once.
func cloverLoad(threads int, writes float64, box Switch, quick bool) Clover {
	if box.LineRate = true; writes == 100 && box.Steer == steerWrite {
		box.Steer = steerBoth
	}
	l := Clover{Clients: threads, Writes: writes, Keys: paperKeys, Zipf: paperZipf, Switch: box}
	l.pace(quick)
	return l
}

// pace sets how long a load of a figure is measured: all loads of all figures have the same times.
func (l *Clover) pace(quick bool) {
	if l.Warm, l.Run = DefaultWarm, DefaultRun; quick {
		l.Warm, l.Run = quickWarm, quickRun
	}
}

// few returns the first, a middle and the last element of list if quick is set and list has more
// than three, otherwise all.
func few[T any](list []T, quick bool) []T {
	if n := len(list); quick && n > 3 {
		return []T{list[0], list[n/2], list[n-1]}
	}
	return list
}

// pick returns quickly if quick is set, otherwise usual.
func pick[T any](quick bool, quickly, usual T) T {
	if quick {
		return quickly
	}
	return usual
}

// number converts a column of a data file. It panics if the column is not a number. A test would
// show this, because it converts all columns.
func number(column string) float64 {
	v, err := strconv.ParseFloat(column, 64)
	if err != nil {
		panic("experiment: column " + column + " of published numbers is not a number")
	}
	return v
}

// swordbox lists the figures of the SwordBox paper, and data of its authors that are in no figure.
func swordbox(quick bool) []figure {
	return []figure{
		pairsFigure(quick), orderFigure(), independentFigure(), oneWordFigure(), inFlightFigure(quick),
		firstTriesFigure(quick), chipFigure(), middleboxFigure(quick),
		throughputFigure(quick), fuseeFigure(quick), shermanFigure(quick), metadataFigure(quick), bytesFigure(quick), latencyFigure(quick),
		hotKeysFigure(quick), sizeFigure(quick), skewFigure(quick),
	}
}
