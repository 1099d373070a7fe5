package experiment

// Rekey is the outcome of SoloRekey. In its arrays, index 0 is the region whose key is replaced,
// and index 1 is another region of the same host that the same client READs.
type Rekey struct {
	// Failed is how many READs failed at least once, divided by the number of new keys. Times is
	// the largest number of failures of one READ.
	Failed [2]float64
	Times  int
	// Added is the largest delay of a READ, in round trips: how much later it ended than in a run
	// that has the same READs and no new keys.
	Added [2]float64
}
