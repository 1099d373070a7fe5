package scenario

func runSoak(e *env) error      { return nil }
func runCrash(e *env) error     { return nil }
func runPartition(e *env) error { return nil }
func runRNR(e *env) error       { return nil }
