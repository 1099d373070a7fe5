package hard

import "github.com/rdmalab/rdmalab/swordbox/words"

type wordsWord = words.Word

const wordsKnown = words.Known
