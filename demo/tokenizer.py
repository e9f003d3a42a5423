"""The demo models' tokenizer: byte-level BPE with Llama 4's special tokens.

Any text can be written (unknown words fall back to bytes); the words of the demo's questions and answers are one token
each. Digits are never merged, so that a number is read digit by digit.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BOS = "<|begin_of_text|>"
EOT = "<|eot|>"
EOM = "<|eom|>"
PAD = "<|finetune_right_pad|>"
IMAGE_START = "<|image_start|>"
IMAGE_END = "<|image_end|>"
IMAGE = "<|image|>"
PATCH = "<|patch|>"
TILE_X_SEPARATOR = "<|tile_x_separator|>"
TILE_Y_SEPARATOR = "<|tile_y_separator|>"
HEADER_START = "<|header_start|>"
HEADER_END = "<|header_end|>"

SPECIAL_TOKENS = (
    BOS,
    "<|end_of_text|>",
    HEADER_START,
    HEADER_END,
    EOM,
    EOT,
    "<|step|>",
    PAD,
    "<|python_start|>",
    "<|python_end|>",
    IMAGE_START,
    IMAGE_END,
    TILE_X_SEPARATOR,
    TILE_Y_SEPARATOR,
    IMAGE,
    PATCH,
)

# Changing this text changes token ids, and with them every demo checkpoint.
_CORPUS = """
system user assistant ipython

What number is this? What number do you see? Which number is in the picture? Read the number.
What is in the picture? What is in this picture? What does the picture show? What do you see? Describe the
picture.
What colour is the circle? What color is it? Name the colour and the shape. What shape is the red object?
Where is the red circle? Where is the number? In which corner is the blue square? Which corner holds the
green triangle?
In which row and column is the yellow star? Which tile holds the purple cross? Where do you find the orange
ring?
How many objects are there? How many red objects are in the picture? How many circles are there? Count the
squares.
Count the triangles. Count the stars. Count the crosses. Count the rings. Count the objects.
Which picture shows the red circle? Which picture shows a blue square? Which picture holds the number?
Do the pictures show the same number? Are the pictures the same? What is in the first picture? And in the
second picture?
What about the third picture? What number is in the third picture? And the last picture? And where is it?
And its colour?
Read the digits tile by tile. Read the digits from left to right. Read the digits from top to bottom.
Read the digits row by row. Which digit is in the top left corner? What is in the bottom right corner? What
is above it?
Answer in a few words. Answer with one word. You answer questions about pictures. You are a helpful assistant.
Hello! Hi. Good morning. Thank you. Who are you? What can you do? Can you help me? Please send a picture.
Ask me about a picture. I see no picture. I am a small demo model. I read handwritten numbers, name colours
and shapes, and count.
red green blue yellow purple orange black white
a red circle, a green square, a blue triangle, a yellow cross, a purple star, an orange ring, an object
circle square triangle cross star ring circles squares triangles crosses stars rings
top left, top right, bottom left, bottom right, in the middle, row column, the top left corner
picture the first picture, the second picture, the third picture, none of them, both, yes, no
Picture: First picture: Second picture: Third picture: Here is a picture. Here are two pictures. Look at
this. Look at these.
"""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer; the same bytes whenever it is built."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,  # never reached: merging ends when every word of the corpus is one token
        min_frequency=1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator([_CORPUS], trainer)
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    bos_id = core.token_to_id(BOS)
    core.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos_id)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BOS,
        eos_token=EOT,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=131072,
    )
