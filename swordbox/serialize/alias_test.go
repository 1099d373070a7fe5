package serialize

import "github.com/rdmalab/rdmalab/swordbox/atomiccache"

type wordsWord = atomiccache.Word

const wordsKnown = atomiccache.Known
