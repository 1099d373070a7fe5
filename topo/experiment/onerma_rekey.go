package experiment

// Rekey is the outcome of SoloRekey. Arrays have the region whose key is replaced, and then another
// region of the same host that the same client READs. Delays are compared with a run that has the
// same READs and no new keys.
type Rekey struct {
	// Failed is how many READs failed at least once, for each new key. Times is how often one READ failed
	// at most.
	Failed [2]float64
	Times  int
	// Added is how much later a READ ended at most, in round trips.
	Added [2]float64
}
